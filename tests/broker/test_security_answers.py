"""What is said of ACLs, users, quotas and transactions, of which there are none."""

import pytest
from tests.broker.admin_stage import AdminStage, run

from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from lakelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from lakelog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from lakelog.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from lakelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from lakelog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from lakelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from lakelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from lakelog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

DISABLED = ErrorCode.SECURITY_DISABLED


@pytest.mark.parametrize("version", range(1, 4))
def test_acls_are_answered_as_by_a_kafka_without_an_authorizer(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        described = await scene.ask(DescribeAclsRequest(), DescribeAclsResponse, version)
        assert (described.error_code, described.resources) == (DISABLED, ())
        creations = CreateAclsRequest((AclCreation(2, "t"), AclCreation(2, "u")))
        created = await scene.ask(creations, CreateAclsResponse, version)
        assert [result.error_code for result in created.results] == [DISABLED] * 2
        filters = DeleteAclsRequest((DeleteAclsFilter(1),) * 3)
        deleted = await scene.ask(filters, DeleteAclsResponse, version)
        assert [result.error_code for result in deleted.filter_results] == [DISABLED] * 3
        for message in (described.error_message, created.results[0].error_message):
            assert message == "No Authorizer is configured."

    run(scenario)


def test_there_are_no_users_and_none_can_be_made() -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        for users, codes in (
            (None, {}),
            ((), {}),
            (("a",), {"a": ErrorCode.RESOURCE_NOT_FOUND}),
            (
                ("a", "b", "a"),
                {"a": ErrorCode.DUPLICATE_RESOURCE, "b": ErrorCode.RESOURCE_NOT_FOUND},
            ),
        ):
            asked = None if users is None else tuple(map(UserName, users))
            request = DescribeUserScramCredentialsRequest(asked)
            found = await scene.ask(request, DescribeUserScramCredentialsResponse, 0)
            assert {result.user: result.error_code for result in found.results} == codes
            assert found.error_code == ErrorCode.NONE
        change = AlterUserScramCredentialsRequest(
            (ScramCredentialDeletion("a", 1),),
            (ScramCredentialUpsertion("b", 1, 4096, b"salt", b"password"),),
        )
        answer = await scene.ask(change, AlterUserScramCredentialsResponse, 0)
        assert {result.user: result.error_code for result in answer.results} == {
            "a": ErrorCode.RESOURCE_NOT_FOUND,
            "b": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        }

    run(scenario)


@pytest.mark.parametrize("version", range(2))
def test_there_are_no_quotas_and_a_limit_that_nobody_keeps_is_refused(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        everything = DescribeClientQuotasRequest((ComponentData("user", 2, None),))
        found = await scene.ask(everything, DescribeClientQuotasResponse, version)
        assert (found.error_code, found.entries) == (ErrorCode.NONE, ())
        entity = (AlterClientQuotasRequestEntityData("user", None),)
        entries = tuple(
            AlterClientQuotasRequestEntryData(entity, (OpData("producer_byte_rate", 1.0, remove),))
            for remove in (False, True)
        )
        change = AlterClientQuotasRequest(entries)
        answer = await scene.ask(change, AlterClientQuotasResponse, version)
        codes = [entry.error_code for entry in answer.entries]
        assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
        assert answer.entries[0].error_message
        assert [(part.entity_type, part.entity_name) for part in answer.entries[0].entity] == [
            ("user", None)
        ]

    run(scenario)


@pytest.mark.parametrize("version", range(3))
def test_no_transaction_is_listed_and_none_is_known(version: int) -> None:
    async def scenario(stage: AdminStage) -> None:
        scene = await stage.broker()
        request = ListTransactionsRequest(state_filters=("Ongoing", "Nosuch"))
        listed = await scene.ask(request, ListTransactionsResponse, version)
        assert (listed.error_code, listed.transaction_states) == (ErrorCode.NONE, ())
        assert listed.unknown_state_filters == ("Nosuch",)
        asked = DescribeTransactionsRequest(("a", "b"))
        found = await scene.ask(asked, DescribeTransactionsResponse, 0)
        states = [(state.transactional_id, state.error_code) for state in found.transaction_states]
        assert states == [(name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND) for name in ("a", "b")]

    run(scenario)
