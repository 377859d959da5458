"""The faults of ``soak_mutations`` still fit the package: each stands for one place of today's code."""

import soak_mutations


def test_every_mutation_fits_the_package_and_changes_it():
    package = soak_mutations.ROOT / "pyflinkstate"
    for mutation in soak_mutations.MUTATIONS:
        assert (package / mutation.file).read_text().count(mutation.old) == 1, mutation.name
        assert mutation.old != mutation.new


def test_mutations_have_names_of_their_own():
    names = [mutation.name for mutation in soak_mutations.MUTATIONS]
    assert len(set(names)) == len(names) >= 10
