"""Write expressions as text: as C++ for kernels, and for people. A `Language` is a table of operations.

The tables are next to the code that uses them: cpu/emit_cpp.py, and nn/explain.py for people.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from timescales.nn.engine.scalar import Node, in_order, schedule


class Language(NamedTuple):
    """How expressions and statements are written.

    operations: a template for each operation, with its operands as {a}, {b} and {c}. {A}, {B} and {C} are the same
        operands with numbers written as vectors, for operations that the language has only on vectors.
    number: writes a constant.
    vector: template of a number as a vector.
    temporary: prefix of the names of results.
    define, define_truth: template of the statement that defines a number, or a truth value.
    both: template of the statement that defines sigmoid(x) and sigmoid(-x) together.
    assign: template of the statement that sets an output, which already exists.
    """

    operations: Mapping[str, str]
    number: Callable[[float], str]
    vector: str = "{}"
    temporary: str = "v"
    define: str = "{name} = {value}"
    define_truth: str = "{name} = {value}"
    both: str = "{name}, {opposite} = both_sigmoids({value})"
    assign: str = "{name} = {value}"

    def expression(self, node: Node, names: Mapping[Node, str]) -> str:
        """Write an expression. names: the names of the expressions that have one, apart from constants."""
        if node in names:
            return names[node]
        if node.op == "constant":
            return self.number(node.value)
        operands = [self.expression(a, names) for a in node.args]
        vectors = [self.as_vector(a, names) for a in node.args]
        if all(a.op == "constant" for a in node.args):  # the result is a vector all the same
            operands[0] = vectors[0]
        inner = [self.operations[a.op] if a.args and a not in names else "" for a in node.args]
        return fill(self.operations[node.op], operands, inner, vectors)

    def as_vector(self, node: Node, names: Mapping[Node, str]) -> str:
        """Write an expression; a number is written as a vector."""
        text = self.expression(node, names)
        return self.vector.format(text) if node.op == "constant" else text


def fill(template: str, operands: Sequence[str], inner: Sequence[str], vectors: Sequence[str] = ()) -> str:
    """Fill operands into the template of an operation.

    inner: the templates of the operands themselves, which decide whether an operand needs parentheses.
    """
    if not template.endswith(")"):
        operands = [f"({o})" if of.startswith("{") else o for o, of in zip(operands, inner, strict=True)]
    return template.format(**dict(zip("abc", operands, strict=False)), **dict(zip("ABC", vectors, strict=False)))


def statements(
    language: Language, results: Sequence[Node], inputs: Mapping[Node, str], targets: Sequence[str]
) -> list[str]:
    """Write a kernel's statements, one per operation, that compute the results and assign them to the targets."""
    names, lines = dict(inputs), list[str]()
    for node, opposite in schedule(results, inputs):
        value = language.expression(node, names)
        names[node] = name = f"{language.temporary}{len(names)}"
        if opposite is None:
            define = language.define_truth if node.is_boolean else language.define
            lines.append(define.format(name=name, value=value))
        else:
            x = language.expression(node.args[0], names)
            names[opposite] = other = f"{language.temporary}{len(names)}"
            lines += language.both.format(name=name, opposite=other, value=x).splitlines()
    for node, target in zip(results, targets, strict=True):
        lines.append(language.assign.format(name=target, value=language.as_vector(node, names)))
    return lines


def equations(
    language: Language, results: Sequence[Node], inputs: Mapping[Node, str], targets: Sequence[str]
) -> list[str]:
    """Write equations for people: one for each result, and one for each expression that is used more than once."""
    order = in_order(results)
    uses = Counter(argument for node in order for argument in node.args)
    names = dict(inputs)
    ends = dict(zip(reversed(results), reversed(targets), strict=True))  # of equal results, the first
    lines, done, temporary = list[str](), set[str](), 0
    for node in order:
        if node in names or not node.args or not (node in ends or uses[node] > 1):
            continue
        value = language.expression(node, names)
        if node not in ends:
            temporary += 1
        names[node] = name = ends.get(node, f"{language.temporary}{temporary}")
        done.add(name)
        lines.append(language.define.format(name=name, value=value))
    # A state that does not change, is constant, or equals another one has no equation so far.
    rest = [(node, target) for node, target in zip(results, targets, strict=True) if target not in done]
    return lines + [language.assign.format(name=t, value=language.expression(node, names)) for node, t in rest]
