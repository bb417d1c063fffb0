"""A planted bug whose text is gone proves nothing: each still fits the code as it is."""

from tests.mutants.__main__ import ROOT, all_plants


def test_every_planted_bug_fits_the_code_as_it_is() -> None:
    plants = all_plants()
    strangers = [
        f"{plant.name}: {change.file}"
        for plant in plants
        for change in plant.changes
        if change.path(ROOT).read_text().count(change.before) != 1
    ]
    assert not strangers


def test_planted_bugs_have_names_of_their_own_and_somebody_who_must_notice() -> None:
    plants = all_plants()
    names = [plant.name for plant in plants]
    assert len(names) == len(set(names))
    assert all(plant.tests or plant.seeds for plant in plants)
