"""The lists of benchmarks and of reproductions."""

from __future__ import annotations

import pytest

from studies.study_commands import BENCHMARKS, ERRORS, QUICK_S, REPRODUCTIONS, parser


@pytest.mark.parametrize(("command", "names"), [("bench", BENCHMARKS), ("reproduce", REPRODUCTIONS)])
def test_a_list_says_how_long_each_takes(command, names, capsys):
    parsed = parser().parse_args([command, "--list"])
    assert parsed.run(parsed) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[:-1]]
    assert {line[0] for line in lines} == set(names)
    assert all(line[1].isdigit() and line[2] in {"s", "min"} for line in lines)


def test_every_time_is_of_something_that_is_listed():
    assert set(QUICK_S) == {*BENCHMARKS, *REPRODUCTIONS}


@pytest.mark.rest
def test_errors_are_of_benchmarks():
    assert ERRORS.keys() <= BENCHMARKS.keys()
