"""Writes the schema files; with `--check`, reports whether they are up to date (exit status 1 if they are not)."""

import argparse

from threadcast.api.schema import RENEW, generate, outdated


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=RENEW, description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, compare only")
    is_check = parser.parse_args(arguments).check
    stale = outdated()
    if is_check:
        for path in stale:
            print(f"{path.name} differs from the structs; renew it with: {RENEW}")
        return 1 if stale else 0
    texts = generate()
    for path in stale:
        path.write_text(texts[path], "utf-8")
        print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
