"""The notebooks: what the tutorial prints, and that it runs. tests/test_pages.py compares them with their sources."""

import subprocess
import sys

import notebooks
import pytest


@pytest.mark.slow
def test_the_tutorial_runs():
    """As a notebook. `make tour` runs what the notebook of the tour has."""
    pytest.importorskip("nbclient")
    book = notebooks.execute(notebooks.BOOKS["tutorial"]())
    last = [out.text for cell in book.cells if cell.cell_type == "code" for out in cell.outputs][-1]
    assert "| decay better than lstm |" in last


# --- The tour's page: its blocks, and how what they print is compared. make tour runs the page itself -----------------
PAGE = """\
# A page

```python
x = 6
print("x is", x)
```

```text
x is 6
```

```bash
python scripts/notebooks.py --help
```

```text
usage: notebooks.py [-h]
...
  -h, --help  show this help message and exit
```

```python
print(x + 0.5)
```
"""


def test_blocks_share_names_and_print_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, command, last = notebooks.blocks(PAGE)
    assert (first.language, command.language, last.printed) == ("python", "bash", None)
    names = {}
    assert notebooks.run(first, names) == first.printed == "x is 6\n"
    assert notebooks.agrees(notebooks.run(command, names), command.printed)
    assert notebooks.run(last, names) == "6.5\n"
    with pytest.raises(ValueError, match=r"must follow the block that prints it: \['x is 7'\]"):
        notebooks.blocks("```text\nx is 7\n```\n")
    with pytest.raises(ValueError, match=r"not a command of the form python SCRIPT ...: rm -r \."):
        notebooks.run(notebooks.Block("bash", "rm -r .\n", None, None), names)
    with pytest.raises(subprocess.CalledProcessError):
        notebooks.run(notebooks.Block("bash", "python scripts/notebooks.py --no-such-option", None, None), names)


def test_a_page_that_shows_something_else_fails(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    monkeypatch.setattr(notebooks, "TOUR", page)
    monkeypatch.setattr(sys, "argv", ["notebooks.py"])
    page.write_text(PAGE.replace("x is 6\n", "x is 7\n"))  # a number
    notebooks.main()
    assert "    x is 6\n" in capsys.readouterr().out
    page.write_text(PAGE.replace("x is 6\n", "y is 6\n"))
    with pytest.raises(SystemExit, match="shows something else:\ny is 6"):
        notebooks.main()


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("finished: 0.6780 (5 s)", "finished: 0.61 (12 s)", True),
        ("p for | 3.3e-05 (1)", "p for | 0.002 (0.01)", True),
        ("lstm   1.2    -1,024", "lstm 10.25  3", True),
        ("| holds | 86.3 (n=3)", "| in order | 86.3 (n=3)", False),
        ("auto: takes eager", "auto: takes fused", False),
        ("a1 = exp(x)", "a2 = exp(x)", False),  # a name, not a number
        ("one\ntwo\nthree", "one\n...\nthree", True),
        ("one\nthree", "one\n...\nthree", True),
        ("one\ntwo", "one\n...\n", True),
        ("one\ntwo", "one", False),
        ("two\nthree", "one\n...\nthree", False),
    ],
)
def test_only_numbers_may_differ(printed, shown, same):
    assert notebooks.agrees(printed, shown) == same


def test_the_page_shows_what_every_block_prints():
    """Blocks that print say so on the page, and its code compiles."""
    blocks = notebooks.blocks(notebooks.TOUR.read_text())
    for block in blocks:
        prints = block.language == "bash" or "print(" in block.text or "explain(" in block.text
        assert (block.printed is not None) == prints, block.text
        if block.language == "python":
            compile(block.text, "page", "exec")


def test_an_outcome_is_shown_and_not_compared(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    monkeypatch.setattr(notebooks, "TOUR", page)
    monkeypatch.setattr(sys, "argv", ["notebooks.py"])
    page.write_text("```python\nprint('not shown')\n```\n\n```text outcome\nholds\n```\n")
    notebooks.main()
    page.write_text("```python\nx = 6\n```\n\n```text outcome\nholds\n```\n")
    with pytest.raises(SystemExit, match="shows something else"):
        notebooks.main()
