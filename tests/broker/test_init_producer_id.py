import asyncio

import pytest
from tests.broker.data_stage import DataStage

from lakelog.broker.init_producer_id import handle
from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def ask(stage: DataStage, request: InitProducerIdRequest) -> InitProducerIdResponse:
    return asyncio.run(handle(stage.broker, stage.call(5), request))


def plain(producer: int = -1, epoch: int = -1) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, producer_id=producer, producer_epoch=epoch)


def test_every_request_gets_a_new_id_with_epoch_0_also_with_an_old_id_in_hand() -> None:
    stage = DataStage()
    made = [ask(stage, plain()), ask(stage, plain()), ask(stage, plain(5, 3))]
    assert [(one.error_code, one.producer_epoch) for one in made] == [(0, 0)] * 3
    assert len({one.producer_id for one in made} | {5}) == 4


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (plain(5, -1), 42),
        (plain(-1, 5), 42),
        (InitProducerIdRequest(transactional_id=""), 42),
        (InitProducerIdRequest(transactional_id="mine"), 53),
    ],
)
def test_half_an_identity_and_transactions_are_refused(
    request_: InitProducerIdRequest, code: int
) -> None:
    assert ask(DataStage(), request_) == InitProducerIdResponse(
        error_code=code, producer_id=-1, producer_epoch=-1
    )


def test_while_no_block_of_ids_can_be_had_the_client_is_asked_to_come_again() -> None:
    stage = DataStage()
    for failure in (Unavailable("down"), OutcomeUnknown("?")):
        stage.cluster.failure = failure
        assert ask(stage, plain()).error_code == 14


def test_with_idempotence_off_there_are_no_ids() -> None:
    stage = DataStage()
    stage.options.idempotence = False
    assert ask(stage, plain()).error_code == 35
