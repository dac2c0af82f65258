"""The page on testing: its tests run, and fail with the words that it shows."""

import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text("utf-8")


def test_the_tests_of_the_page_end_as_it_says(pytester):
    files = dict(re.findall(r'^```python title="(.*?)"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL))
    pytester.makepyfile(**{name.removesuffix(".py"): text for name, text in files.items()})
    done = pytester.runpytest_inprocess("-pteachdist.testing.plugin", "-pno:hypothesispytest")
    done.assert_outcomes(passed=3, failed=3)
    said = done.stdout.str()
    shown = re.findall(r'^```text title="pytest (.*?)"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in shown] == ["test_sum.py", "test_hang.py"]
    for _, text in shown:
        assert text.strip() in said
