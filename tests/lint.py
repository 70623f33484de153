"""The linter of the code base: which part may import which, how long files and functions are, what tests may say.

`python tests/lint.py` prints what breaks a rule, a line each, and exits with 1 where there is anything. A rule is a
function from the tree of files to what breaks it; `RULES` names them all. An import counts wherever it stands: in a
function and under TYPE_CHECKING too.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

NAME = "tvm_cascade"
FOLDERS = {NAME: "python/tvm_cascade", "corpus": "corpus", "benchmarks": "benchmarks", "campaigns": "campaigns"}
"""Of the packages whose modules are checked: what is installed, programs, what measures it, what tests it at random."""

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_LONE_LINES = 300
LONE_FILES = "tests/lone_files.json"  # reasons, each with the files of the package that stand alone by it
MAX_FLOORS = 7  # of imports within the algebra: laws on laws are the sign of cases that no theory holds together

# Each part with the parts that it may import besides itself. A part is a module or subpackage of tvm_cascade, or the
# package of a checkout beside it.
BASE = {"errors", "options", "devices"}
STEPS = BASE | {"symbolic", "codes", "algebra"}
CHECKED = STEPS | {"steps"}
ANALYSIS = CHECKED | {"obligations"}
TRANSFORM = ANALYSIS | {"analysis"}
LOWERING = TRANSFORM | {"tvm_faults", "transform"}
META_SCHEDULE = LOWERING | {"schedule", "tile"}
FRONT = {
    "te",
    "plan",
    "chunks",
    "reverse",
    "report",
    "driver",
    "_versions",
    "_autoload",
}
LIBRARY = META_SCHEDULE | {"meta_schedule"} | FRONT | {"relax"}
# The numerics report is for users, and models are compared with PyTorch as they are compiled, so what they need is a
# layer of its own, below the commands.
USERS = LIBRARY | {"evaluate", "accuracy", "tuning", "__init__"}  # those who come in by the front door
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "options": {"errors"},
    "devices": {"errors"},
    "_versions": {"errors"},
    "symbolic": set(),
    "codes": {"symbolic"},
    "algebra": {"errors", "symbolic", "codes"},
    "steps": STEPS,
    "obligations": CHECKED,
    "analysis": ANALYSIS,
    "tvm_faults": TRANSFORM,
    "transform": TRANSFORM | {"tvm_faults"},
    "schedule": LOWERING,
    "tile": LOWERING,
    "plan": LOWERING | {"tile", "chunks"},
    "report": LOWERING | {"schedule", "tile", "plan"},
    "driver": LOWERING | {"schedule", "tile", "plan", "report", "_versions"},
    "te": LOWERING,
    "chunks": LOWERING,
    "reverse": LOWERING | {"chunks"},
    "meta_schedule": META_SCHEDULE,
    "_autoload": {"transform", "meta_schedule"},
    "evaluate": {"errors"},
    "accuracy": LIBRARY | {"evaluate"},
    "tuning": LIBRARY | {"evaluate", "accuracy"},
    "relax": LIBRARY - {"relax"},
    "torch": LIBRARY | {"evaluate"},
    "distributed": LIBRARY | {"torch"},
    "__init__": LIBRARY | {"accuracy", "tuning", "torch", "distributed"},
    "cli": USERS,
    "__main__": {"cli"},
    "corpus": {"errors", "symbolic", "te", "evaluate", "driver", "__main__"},
    "benchmarks": USERS | {"corpus", "torch", "distributed", "cli", "__main__"},
    "campaigns": USERS | {"corpus", "cli", "benchmarks"},
}

# What may be imported when a module loads. The peers of the benchmarks and the tuner's needs are imported in functions.
THIRD_PARTY = {"tvm", "tvm_ffi", "numpy", "sympy", "flint", "ml_dtypes", "rich", "typing_extensions"}
# Packages that are for an optional dependency, which they load: the others import them in functions.
FOR_AN_OPTION = {
    f"{NAME}.torch": {"torch"},
    f"{NAME}.distributed": {"torch"},
    **{
        f"benchmarks.{name}": {"torch"}
        for name in ("torch_models", "experts", "mixtures", "training", "backward", "scale", "flex", "context_parallel")
    },
}
ALGEBRA_THIRD_PARTY = {"sympy", "flint"}  # flint encloses its numbers

# Where skeletons of kernels are, and what a module imports that writes statements of kernels.
SKELETONS = f"{NAME}.tile.skeletons"
WRITES_KERNELS = ("tvm.tirx.script", f"{NAME}.tile.emit")

# What modules open with, and how things are called: in the words of docs/glossary.md, not in these.
MAX_FIRST_LINE = 120
PRIVATE_WORDS = {
    "held": "at a reference, stored, resident or in registers",
    "lasting": "sticky",
    "deal": "schedule",
    "dealt": "scheduled",
    "team": "thread group",
    "gauge": "reference, or the policy by which it moves",
    "gauges": "references, or the policies by which they move",
    "gauged": "with a prologue",
    "meeting": "fix-up",
    "meetings": "fix-ups",
    "second way": "fallback",
    "second ways": "fallbacks",
}

# Nor in these what users read: words that are plain in the code's own names, but stood for something else in prose.
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "tutorials/*.ipynb")
PRIVATE_IN_PROSE = {
    **PRIVATE_WORDS,
    "handle": "loop-invariant part, or block of a schedule",
    "handles": "loop-invariant parts, or blocks of a schedule",
    "beside": "next to, against, on top of or in the same session as",
    "told": "reported, named or known",
    "met": "reached or attained",
    "bears": "allows",
    "standing": "at the reference so far",
    "hand over": "follow on each other",
    "by value": "at run time",
    "left apart": "not merged",
    "decided upon": "checked at run time",
}
NOT_PROSE = re.compile(r"^```.*?^```$|<!--.*?-->|`[^`]*`", re.M | re.S)

# Where results of programs are compared there is one rule, `evaluate.tolerance`; the oracle and the algebra, which it
# rests on, are compared with float64 to its last digits, and clocks with clocks.
OWN_TOLERANCES = {"allclose", "assert_allclose", "isclose", "approx", "assert_almost_equal"}
FREE_TO_SAY = ("tests/algebra/", "tests/steps/", "tests/evaluate/", "tests/bench/test_timing.py")


# The target that is current when a function runs is an input that no caller sees.
AMBIENT = {"current", "target_or_current"}
MAY_ASK_FOR_THE_TARGET = "python/tvm_cascade/devices/read.py"


@dataclass(frozen=True)
class Violation:
    """What breaks a rule, and where."""

    name: str
    line: int
    told: str

    def __str__(self) -> str:
        return f"{self.name}:{self.line}: {self.told}"


@dataclass(frozen=True)
class Source:
    """One file; `name` is its path below the root."""

    path: Path
    name: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    def breaks(self, told: str, line: int = 1) -> Violation:
        return Violation(self.name, line, told)


@dataclass(frozen=True)
class Module(Source):
    """One file of a package; `parts` is its path below the package."""

    package: str
    parts: tuple[str, ...]

    @property
    def part(self) -> str:
        """The part that it belongs to: a key of `ALLOWED`."""
        return self.parts[0] if self.package == NAME else self.package

    @property
    def dotted(self) -> str:
        """The name by which it is imported."""
        return ".".join((self.package, *(part for part in self.parts if part != "__init__")))

    def imported(self, node: ast.AST) -> Iterator[str]:
        """Absolute dotted names that an import statement reads; `from a import b` may read the module a.b."""
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = (self.package, *self.parts[:-1])
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            yield from (f"{module}.{alias.name}" for alias in node.names)

    def third_party(self, nodes: Iterable[ast.AST]) -> set[str]:
        """The packages of others that import statements among the nodes name."""
        tops = {name.split(".")[0] for node in nodes for name in self.imported(node)}
        return tops - set(sys.stdlib_module_names) - FOLDERS.keys()


@dataclass(frozen=True)
class Tree:
    """The files of a checkout: those of the packages, all whose length is checked, and those that users read."""

    modules: list[Module]
    sources: list[Source]
    pages: list[Source]
    lone: dict[str, list[str]] | None

    @classmethod
    def of(cls, root: Path) -> Tree:
        modules = [
            Module(path, str(path.relative_to(root)), package, path.relative_to(root / folder).with_suffix("").parts)
            for package, folder in FOLDERS.items()
            for path in sorted((root / folder).rglob("*.py"))
        ]
        if not any(module.package == NAME for module in modules):
            raise SystemExit(f"no modules of {NAME} in {root / FOLDERS[NAME]}")
        others = [*sorted((root / "tests").rglob("*.py")), *root.glob("setup.py")]
        pages = [path for pattern in PAGES for path in sorted(root.glob(pattern))]
        sources, read = ([Source(path, str(path.relative_to(root))) for path in paths] for paths in (others, pages))
        lone = json.loads(path.read_text(encoding="utf-8")) if (path := root / LONE_FILES).exists() else None
        return cls(modules, [*modules, *sources], read, lone)

    @cached_property
    def read(self) -> dict[str, set[str]]:
        """The modules that each module imports, wherever in it the import stands."""
        names, read = {module.dotted for module in self.modules}, dict[str, set[str]]()
        for module in self.modules:
            named = {found for node in module.nodes for found in module.imported(node)}
            found = {whole if whole in names else whole.rpartition(".")[0] for whole in named}
            read[module.dotted] = (found & names) - {module.dotted}
        return read


def imports_follow_the_layers(tree: Tree) -> Iterator[Violation]:
    for module in tree.modules:
        if module.part not in ALLOWED:
            yield module.breaks(f"{module.part} has no place in the order of layers yet")
            continue
        for node in module.nodes:
            names = [name.split(".") for name in module.imported(node)]
            read = {(*name, "__init__")[1] if name[0] == NAME else name[0] for name in names if name[0] in FOLDERS}
            parts = {part if part in ALLOWED else "__init__" for part in read}  # a public name is the front door's
            for part in sorted(parts - ALLOWED[module.part] - {module.part}):
                yield module.breaks(f"{module.part} must not import {part}", getattr(node, "lineno", 1))


def layers_have_an_order(tree: Tree) -> Iterator[Violation]:
    try:
        TopologicalSorter(ALLOWED).prepare()
    except CycleError as error:
        yield tree.modules[0].breaks(f"the table of layers has a circle: {error.args[1]}")


def imports_have_no_circles(tree: Tree) -> Iterator[Violation]:
    """Modules that import each other, wherever in a module the import stands."""
    modules, read = {module.dotted: module for module in tree.modules}, tree.read
    for circle in sorted(circles(read), key=sorted):
        yield modules[min(circle)].breaks(f"modules import each other: {', '.join(sorted(circle))}")


def the_algebra_has_few_floors(tree: Tree) -> Iterator[Violation]:
    """A module of the algebra stands one floor above the highest that it imports of the algebra."""
    part = {module.dotted: module for module in tree.modules if module.part == "algebra"}
    within = {name: tree.read[name] & part.keys() for name in part}
    if circles(within):
        return
    floors = dict[str, int]()
    for name in TopologicalSorter(within).static_order():
        floors[name] = 1 + max((floors[other] for other in within[name]), default=0)
        if floors[name] > MAX_FLOORS:
            yield part[name].breaks(f"floor {floors[name]} of the algebra, of at most {MAX_FLOORS}")


def circles(read: Mapping[str, Set[str]]) -> set[frozenset[str]]:
    """The largest sets of modules in which each reaches every other."""
    reached = {name: _reached(name, read) for name in read}
    together = {name: frozenset(n for n in reached[name] if name in reached[n]) for name in read}
    return {circle for circle in together.values() if circle}


def _reached(start: str, read: Mapping[str, Set[str]]) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        new = read[pending.pop()] - found
        found |= new
        pending += new
    return found


def algebra_knows_no_compiler(tree: Tree) -> Iterator[Violation]:
    for module in (m for m in tree.modules if m.part in ("symbolic", "algebra")):
        for name in sorted(module.third_party(module.nodes) - ALGEBRA_THIRD_PARTY):
            yield module.breaks(f"the algebra must not import {name}")


def loading_needs_no_optional_dependency(tree: Tree) -> Iterator[Violation]:
    for module in tree.modules:
        allowed = set().union(*(FOR_AN_OPTION[one] for one in FOR_AN_OPTION if _within(module.dotted, one)))
        for name in sorted(module.third_party(_at_load(module.tree)) - THIRD_PARTY - allowed):
            yield module.breaks(f"{name} is optional: import it in the function that needs it")
        loaded = {name for node in _at_load(module.tree) for name in module.imported(node)}
        for package in FOR_AN_OPTION:
            if any(_within(name, package) for name in loaded) and not FOR_AN_OPTION[package] <= allowed:
                yield module.breaks(f"{package} is optional: import it in the function that needs it")


def _within(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")


def _at_load(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: all but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _at_load(child)


def skeletons_are_named_in_their_table_alone(tree: Tree) -> Iterator[Violation]:
    """A skeleton is a folder and a row: nothing else in the package reads its modules, not even another skeleton."""
    for module in tree.modules:
        for node in module.nodes:
            for name in module.imported(node):
                read = name.removeprefix(f"{SKELETONS}.").split(".")[0]
                own = module.dotted == f"{SKELETONS}.table" or module.dotted.startswith(f"{SKELETONS}.{read}")
                if name.startswith(f"{SKELETONS}.") and read != "table" and not own:
                    yield module.breaks(f"only the table reads the skeleton {read}", getattr(node, "lineno", 1))


def what_is_emitted_is_not_refused(tree: Tree) -> Iterator[Violation]:
    """Modules that write a kernel know no refusal: whether a shape fits is decided before."""
    for module in (m for m in tree.modules if m.part == "tile"):
        names = {name: node for node in module.nodes for name in module.imported(node)}
        refusal = next((node for name, node in names.items() if name.endswith(".Unfit")), None)
        if refusal is not None and any(name.startswith(WRITES_KERNELS) for name in names):
            yield module.breaks(
                "writes kernels and refuses: decide in the shape or the configuration", getattr(refusal, "lineno", 1)
            )


def targets_are_handed_down(tree: Tree) -> Iterator[Violation]:
    """Nothing asks TVM for the target around it but the one function for entries that TVM calls without a target."""
    for module in (m for m in tree.modules if m.name != MAY_ASK_FOR_THE_TARGET):
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and node.attr in AMBIENT and ast.unparse(node.value).endswith("Target"):
                yield module.breaks(f"Target.{node.attr}: take the target or the device", node.lineno)


def files_are_short(tree: Tree) -> Iterator[Violation]:
    for source in tree.sources:
        if (lines := len(source.text.splitlines())) > MAX_FILE_LINES:
            yield source.breaks(f"{lines} lines, of at most {MAX_FILE_LINES}")


def files_of_one_reader_have_a_reason(tree: Tree) -> Iterator[Violation]:
    """A short file that one other of the package imports is part of that, or `LONE_FILES` tells why it is not."""
    if tree.lone is None:
        return
    told = {f"{NAME}.{name}" for names in tree.lone.values() for name in names}
    own = {module.dotted: module for module in tree.modules if module.package == NAME}
    readers = Counter(name for reader in own for name in tree.read[reader])
    short = {name for name, module in own.items() if len(module.text.splitlines()) <= MAX_LONE_LINES}
    lone = {name for name in short if readers[name] <= 1 and own[name].parts[-1] != "__init__"}
    for name in sorted(lone - told):
        yield own[name].breaks(f"one file imports it at most, and {LONE_FILES} has no reason why it is one")
    for name in sorted(told - lone):
        yield tree.modules[0].breaks(f"{name} needs no reason in {LONE_FILES}")


def functions_fit_a_screen(tree: Tree) -> Iterator[Violation]:
    for source in tree.sources:
        for node in source.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    yield source.breaks(f"{node.name} has {lines} lines, of at most {MAX_FUNCTION_LINES}", node.lineno)


def folders_say_what_they_are(tree: Tree) -> Iterator[Violation]:
    said = {module.path.parent for module in tree.modules if module.parts[-1] == "__init__" and _told(module)}
    for folder in sorted({module.path.parent for module in tree.modules} - said):
        first = next(module for module in tree.modules if module.path.parent == folder)
        yield first.breaks("its folder has no __init__.py with a docstring")


def _told(module: Module) -> bool:
    return bool(ast.get_docstring(module.tree))


def modules_open_with_a_sentence(tree: Tree) -> Iterator[Violation]:
    for module in (m for m in tree.modules if _told(m)):
        first = _first_line(module)
        if len(first) > MAX_FIRST_LINE or not first.endswith("."):
            yield module.breaks(f"its first line is no sentence of at most {MAX_FIRST_LINE} characters")


def words_are_those_of_the_glossary(tree: Tree) -> Iterator[Violation]:
    """First lines of modules, and the names that they define; a name's words are set apart by capitals and `_`."""
    for module in tree.modules:
        named = [(1, _first_line(module)), (1, module.parts[-1])]
        named += [(getattr(node, "lineno", 1), name) for node in module.nodes if (name := _defined(node))]
        for line, text in named:
            for word in private(re.sub(r"([A-Z])", r" \1", text.replace("_", " ")), PRIVATE_WORDS):
                yield module.breaks(f"`{word}` in `{text}`: say {PRIVATE_WORDS[word]}", line)


def prose_has_no_private_words(tree: Tree) -> Iterator[Violation]:
    """Paragraphs of pages and notebooks; code, comments and quoted names apart."""
    for page in tree.pages:
        prose = NOT_PROSE.sub(lambda left_out: "\n" * left_out[0].count("\n"), _prose(page))
        for paragraph in re.finditer(r"(?:.+\n?)+", prose):
            for word in private(paragraph[0], PRIVATE_IN_PROSE):
                yield page.breaks(
                    f"`{word}`: say {PRIVATE_IN_PROSE[word]}", prose.count("\n", 0, paragraph.start()) + 1
                )


def messages_have_no_private_words(tree: Tree) -> Iterator[Violation]:
    """Texts of several words that are no docstrings: what errors, reports and help are made of."""
    for module in tree.modules:
        docstrings = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
        for node in module.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                for word in private(node.value, PRIVATE_IN_PROSE) if " " in node.value.strip() else ():
                    yield module.breaks(f"`{word}`: say {PRIVATE_IN_PROSE[word]}", node.lineno)


def _prose(page: Source) -> str:
    """A page as it is, or what a notebook says between its cells of code."""
    if page.path.suffix != ".ipynb":
        return page.text
    cells = json.loads(page.text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def private(text: str, table: Mapping[str, str]) -> list[str]:
    """Entries of the table that are words of a text."""
    words = f" {' '.join(re.findall('[a-z]+', text.lower()))} "
    return [word for word in table if f" {word} " in words]


def _first_line(module: Module) -> str:
    return (ast.get_docstring(module.tree) or "").partition("\n")[0]


def _defined(node: ast.AST) -> str:
    """The name that a node defines; empty for any other."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ""


def tests_have_no_tolerance_of_their_own(tree: Tree) -> Iterator[Violation]:
    for source in tree.sources:
        if source.name.startswith("tests/") and not source.name.startswith(FREE_TO_SAY):
            for node in source.nodes:
                if isinstance(node, ast.Attribute) and node.attr in OWN_TOLERANCES:
                    yield source.breaks(f"{node.attr}: compare by evaluate.tolerance", node.lineno)


RULES: tuple[Callable[[Tree], Iterator[Violation]], ...] = (
    imports_follow_the_layers,
    layers_have_an_order,
    imports_have_no_circles,
    the_algebra_has_few_floors,
    algebra_knows_no_compiler,
    loading_needs_no_optional_dependency,
    skeletons_are_named_in_their_table_alone,
    what_is_emitted_is_not_refused,
    targets_are_handed_down,
    files_are_short,
    files_of_one_reader_have_a_reason,
    functions_fit_a_screen,
    folders_say_what_they_are,
    modules_open_with_a_sentence,
    words_are_those_of_the_glossary,
    prose_has_no_private_words,
    messages_have_no_private_words,
    tests_have_no_tolerance_of_their_own,
)


def violations(root: Path) -> list[Violation]:
    """All that breaks a rule in a checkout, rule by rule."""
    tree = Tree.of(root)
    return [violation for rule in RULES for violation in rule(tree)]


def main() -> int:
    """Lint this checkout; returns 1 where something breaks a rule."""
    found = violations(Path(__file__).resolve().parent.parent)
    print("\n".join([*map(str, found), f"{len(found)} violations of {len(RULES)} rules"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
