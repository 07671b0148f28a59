"""A style sheet of the page changes only its own component: all sheets except two global ones are CSS Modules.

Sheets of components are loaded when a component is first shown. A class rule in a global sheet that is loaded late
changes elements that are already on the page; `tests/browser/test_styles.py` looks for such changes in a browser. The
tests of this file read the sources as text: selectors of `*.module.css`, and the class names that components use.
"""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "web" / "app" / "src"

GLOBAL_SHEETS = {"styles/base.css", "styles/ui.css"}

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
BLOCK = re.compile(r"(?P<head>[^{};]*)\{|\}")
GLOBAL = re.compile(r":global\(\.([\w-]+)\)")

LIBRARIES = ("hljs-", "katex")
"""The class names of highlight.js and KaTeX."""

CLASS = re.compile(r"\.([a-zA-Z_][\w-]*)")
IMPORT = re.compile(r'^import (\w+) from "(\.[\w./]*\.module\.css)";$', re.MULTILINE)
LITERAL = re.compile(r"""\bclass(?:Name)?=(?:"([^"]*)"|\{([^{}]*(?:\$\{[^{}]*\}[^{}]*)*)\})""")
QUOTED = re.compile(r"\"[^\"]*\"|`[^`]*`")
COMPARISON = re.compile(r'[=!]== "[^"]*"')


def split_at_commas(selectors: str) -> Iterator[str]:
    """Return the selectors of a list; a comma inside parentheses does not separate selectors."""
    depth, start = 0, 0
    for at, sign in enumerate(selectors):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            yield selectors[start:at].strip()
            start = at + 1
    yield selectors[start:].strip()


def selectors_in(sheet: str) -> Iterator[str]:
    """Return every selector of a sheet, also selectors inside `@media`, but not the steps of `@keyframes`."""
    open_heads: list[str] = []
    for found in BLOCK.finditer(COMMENT.sub("", sheet)):
        if found["head"] is None:
            open_heads.pop()
            continue
        head = found["head"].strip()
        if not head.startswith("@") and not any(each.startswith("@keyframes") for each in open_heads):
            yield from split_at_commas(head)
        open_heads.append(head)


def local_classes(selector: str) -> set[str]:
    return set(CLASS.findall(GLOBAL.sub("", selector)))


def modules() -> dict[Path, str]:
    return {path: path.read_text("utf-8") for path in sorted(SOURCES.rglob("*.module.css"))}


def components() -> dict[Path, str]:
    return {path: path.read_text("utf-8") for path in sorted(SOURCES.rglob("*.ts*"))}


def test_selectors_are_read_from_media_queries_and_lists() -> None:
    sheet = "/* .no { } */ .a, :is(.b, p) { color: red; }\n@media print { .c > :global(.icon) { top: 0.5rem; } }\n"
    sheet += "@keyframes turn { from { top: 0; } 50% { top: 1px; } }"
    assert list(selectors_in(sheet)) == [".a", ":is(.b, p)", ".c > :global(.icon)"]
    assert local_classes(".c > :global(.icon)") == {"c"}


def test_only_two_sheets_are_global() -> None:
    plain = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.css")}
    assert plain - {path.relative_to(SOURCES).as_posix() for path in modules()} == GLOBAL_SHEETS


def test_every_rule_of_a_component_names_a_class_of_its_own_sheet() -> None:
    everywhere = [
        f"{path.name}: {selector}"
        for path, sheet in modules().items()
        for selector in selectors_in(sheet)
        if not local_classes(selector)
    ]
    assert not everywhere, "these selectors hold on the whole page:\n" + "\n".join(everywhere)


def global_classes() -> set[str]:
    sheet = (SOURCES / "styles/ui.css").read_text("utf-8")
    return {name for selector in selectors_in(sheet) for name in CLASS.findall(selector)}


def test_sheets_name_foreign_classes_only_of_the_global_sheet_and_of_libraries() -> None:
    named = {name for sheet in modules().values() for name in GLOBAL.findall(sheet)}
    assert not {name for name in named - global_classes() if not name.startswith(LIBRARIES)}


def test_scoped_names_of_two_sheets_differ() -> None:
    """`web/app/vite.config.ts` makes a class's name from the sheet's directory, its name, and the class."""
    prefixes = [(path.parent.name, path.name) for path in modules()]
    assert len(set(prefixes)) == len(prefixes)


def test_components_use_every_class_of_their_sheets_and_no_other() -> None:
    defined = {
        (path, name)
        for path, sheet in modules().items()
        for each in selectors_in(sheet)
        for name in local_classes(each)
    }
    used = {
        ((file.parent / sheet).resolve(), name)
        for file, text in components().items()
        for alias, sheet in IMPORT.findall(text)
        for name in re.findall(rf"(?<![\w.]){alias}\.(\w+)", text)
    }
    assert {f"{path.name}: {name}" for path, name in used - defined} == set(), "used, without a rule"
    assert {f"{path.name}: {name}" for path, name in defined - used} == set(), "rules for nothing"


def test_literal_class_names_are_those_of_the_global_sheet() -> None:
    """The exceptions are classes such as `language-python`, in which the Markdown renderer stores a block's
    language."""
    literal = {
        f"{file.name}: {name}"
        for file, text in components().items()
        for plain, expression in LITERAL.findall(text)
        for part in [plain, *QUOTED.findall(COMPARISON.sub("", expression))]
        for name in re.sub(r"\$\{[^}]*\}|[\"`]", " ", part).split()
        if name not in global_classes() | {"language-"}
    }
    assert literal == set()


def test_browser_tests_find_nothing_by_class() -> None:
    """The build generates class names, so tests refer to roles, labels, texts and `data-` attributes. KaTeX's classes
    are an exception, because formulas have no other names."""
    by_class = re.compile(
        r"""(?:locator|querySelector(?:All)?|closest)\(\s*f?["'`][^"'`]*(?<![\w/\d])\.(?!katex)[a-z][\w-]*"""
    )
    found = [
        f"{path.name}: {match[0]}"
        for room in ("tests/browser", "tests/web", "bench")
        for path in sorted((ROOT / room).rglob("*.py"))
        for match in by_class.finditer(path.read_text("utf-8"))
    ]
    assert not found
