"""How much one reads to get from train.py to a cell: measured on a real run, by the functions that it goes through."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = [
    "model=plstm",
    "task=copy",
    "task.T=2",
    "task.train_size=4",
    "task.valid_size=4",
    "task.test_size=4",
    "task.batch_size=4",
    "model.hidden_size=4",
    "loop.max_steps=1",
    "engine=eager",
    "device=cpu",
    "logger=none",
]
# Where the way leads: the cell is built, a batch is drawn, a step of the equations is taken, and its loss.
CELL, TASK = "timescales/nn/cells/plstm.py", "timescales/tasks/copy.py"
ENDS = {
    ("timescales/nn/cells/cell.py", "Cell.__init__"),
    (TASK, "Copy.symbols"),
    (CELL, "PowerLawCell.forgetting"),
    ("timescales/nn/cells/cell.py", "Cell.weights"),
    (TASK, "Copy.loss"),
    ("timescales/nn/cells/cell.py", "Cell.initial_state"),
}


def the_way(train):
    """(file, function) of our own code on the stack whenever one of the ends is entered for the first time."""
    seen, left = {}, set(ENDS)

    def name(frame):
        path = Path(frame.f_code.co_filename)
        ours = path.is_relative_to(ROOT) and "site-packages" not in path.parts  # of a .venv in the checkout
        return (str(path.relative_to(ROOT)) if ours else "", frame.f_code.co_qualname)

    def watch(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)) and name(frame) in left:
            left.discard(name(frame))
            while frame is not None:
                if (here := name(frame))[0] and not here[0].startswith("tests/"):
                    seen[here] = None
                frame = frame.f_back

    sys.setprofile(watch)
    try:
        done = train(*RUN)
    finally:
        sys.setprofile(None)
    assert done.status == 0, done
    assert not left
    return list(seen)


def lines_of(path, qualname):
    """Lines of a function's code: without blank lines, comments and docstrings."""
    text = (ROOT / path).read_text()
    node = ast.parse(text)
    for part in qualname.replace(".<locals>", "").split("."):
        inside = [n for n in ast.walk(node) if n is not node and getattr(n, "name", None) == part]
        if not inside:  # a lambda or a comprehension: within the function that is counted already
            return set()
        node = inside[0]
    documented = [n.body[0] for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and ast.get_docstring(n)]
    hidden = {k for doc in documented for k in range(doc.lineno, doc.end_lineno + 1)}
    lines = text.splitlines()
    return {
        k
        for k in range(node.lineno, node.end_lineno + 1)
        if k not in hidden and lines[k - 1].strip() and not lines[k - 1].strip().startswith("#")
    }


def test_from_train_py_to_a_cell_is_under_500_lines(train):
    way = the_way(train)
    files = {path for path, _ in way}
    steps = ("experiment/train", "training/build", "training/loop", "models/sequence", "nn/rnn")
    steps += ("nn/engine/eager", "tasks/task")
    assert {"train.py", CELL, TASK, *(f"timescales/{step}.py" for step in steps)} <= files
    counted = {(path, k) for path, function in way for k in lines_of(path, function)}
    by_file = {path: sum(1 for p, _ in counted if p == path) for path in sorted(files)}
    assert (CELL, "PLSTMCell.step") in way
    assert ("timescales/training/loop.py", "fit") in way
    assert len(counted) < 500, by_file  # see ARCHITECTURE.md


def test_a_training_step_stands_in_the_loop_itself():
    """In this order, in `fit`, whose inner function computes the gradients."""
    text = "\n".join(
        (ROOT / "timescales/training/loop.py").read_text().splitlines()[k - 1]
        for k in sorted(lines_of("timescales/training/loop.py", "fit"))
    )
    words = ["model(batch", ".task.loss(", "backward(", "clip_grad_norm_("]
    words += ["while ", "draw_batch", "zero_grad(", "graphs.of(gradients)", "optimizers.step(", "record_step"]
    words += ["finish_step("]
    places = [text.rindex(word) for word in words]
    assert places == sorted(places)
