"""What a C++ header declares for its users: functions, classes with their public methods, fields and enumerators, each
with the first sentence of its docstring. Reads the style of this tree, not C++ at large.
"""

import re
from dataclasses import dataclass, field

IN_DETAIL = re.compile(r"\bdetail\b")
# Classes that users derive theirs from: what is protected is for them too.
BASES = {"Module"}


@dataclass
class Entry:
    name: str
    scope: str  # namespace within lorry, or class
    kind: str  # function, method, class, struct, value
    sentence: str
    shown: list = field(default_factory=list)
    base: str = ""
    result: str = ""
    takes_tensor: bool = False


def first_sentence(doc):
    text = re.sub(r"\s+", " ", " ".join(doc)).strip()
    match = re.match(r"(.+?[^.](?<!e\.g)(?<!i\.e)\.)(?: [A-Z\[`(0-9{-]| \w+(, \w+)*:|$)", text)
    sentence = match[1] if match else text
    return sentence + ("" if not sentence or sentence.endswith(".") else ".")


def matching(text, at, pair="{}"):
    """The place after the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0:
            return i + 1
    raise SystemExit("a bracket does not close")


def split(parameters):
    parts, depth, start = [], 0, 0
    for i, c in enumerate(parameters):
        depth += {"<": 1, "(": 1, "{": 1, ">": -1, ")": -1, "}": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append(parameters[start:i].strip())
            start = i + 1
    return [*parts, parameters[start:].strip()] if parameters.strip() else []


def parameter(text):
    """A parameter by its name and default; an unnamed one by its type."""
    declared, _, default = (part.strip() for part in text.partition("="))
    array = re.search(r"\(&(\w+)\)\[", declared)
    name = array[1] if array else re.sub(r"\[.*\]$", "", declared).split()[-1].lstrip("&*")
    default = re.sub(r"\s+", " ", default)
    return f"{name} = {default}" if default else name


def without_template(head):
    while head.startswith("template"):
        at = head.index("<")
        head = head[matching(head, at, "<>") :].strip()
    return head


def without_constraint(head):
    """Without the requires-clause that begins it."""
    if not head.startswith("requires"):
        return head
    at = len("requires")
    while True:
        at += len(head[at:]) - len(head[at:].lstrip())
        while match := re.compile(r"requires\b\s*|!\s*").match(head, at):
            at = match.end()
        if head[at] == "(":
            at = matching(head, at, "()")
            if match := re.compile(r"\s*\{").match(head, at):
                at = matching(head, match.end() - 1)
        elif head[at] == "{":
            at = matching(head, at)
        else:
            at = re.compile(r"[\w:]+").match(head, at).end()
            if head[at : at + 1] == "<":
                at = matching(head, at, "<>")
        match = re.compile(r"\s*(&&|\|\|)").match(head, at)
        if not match:
            return head[at:].strip()
        at = match.end()


class Header:
    """The public entries of one header."""

    def __init__(self, path):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", "", text, flags=re.M)
        self.text = re.sub(r"^LORRY_\w+\([^\n]*\)$", "", text, flags=re.M)
        self.entries = []
        self.scan()

    def scan(self):
        text, at, doc = self.text, 0, []
        scopes, public = [], [True]
        fields = {}
        while at < len(text):
            if match := re.compile(r"[ \t]*\n[ \t]*(?=\n)").match(text, at):
                doc, at = [], match.end()
            elif match := re.compile(r"\s+").match(text, at):
                at = match.end()
            elif match := re.compile(r"///<[^\n]*").match(text, at):
                at = match.end()
            elif match := re.compile(r"///([^\n]*)").match(text, at):
                doc.append(match[1])
                at = match.end()
            elif match := re.compile(r"//[^\n]*").match(text, at):
                at = match.end()
            elif match := re.compile(r"(public|private|protected):").match(text, at):
                public[-1] = match[1] == "public" or (match[1] == "protected" and scopes[-1][1] in BASES)
                at = match.end()
            elif text[at] == "}":
                if scopes:
                    scopes.pop()
                    public.pop()
                at += 1
            elif text[at] == ";":
                at += 1
            else:
                end, brace = self.declaration(at)
                head = re.sub(r"\s+", " ", re.sub(r"//[^\n]*", "", text[at:end])).strip()
                visible = all(public) and not any(IN_DETAIL.search(name) for _, name in scopes)
                used, doc = doc, []
                opened = None
                if brace:
                    plain = without_template(head)
                    if match := re.match(r"(?:inline )?namespace ([\w:]+)$", plain):
                        opened = ("namespace", match[1], True)
                    elif match := re.match(r"(class|struct) (?:\[\[\w+\]\] )?(\w+)( final)?(?: : (.*))?$", plain):
                        base = re.sub(r"\b(public|private) ", "", match[4] or "")
                        if visible:
                            entry = self.add(match[2], scopes, match[1], used, [], base)
                            fields[match[2]] = entry
                        opened = (match[1], match[2], match[1] == "struct")
                    elif re.match(r"enum ", plain):
                        name = re.match(r"enum (?:class )?(\w+)", plain)[1]
                        body = text[end + 1 : matching(text, end) - 1]
                        names = [
                            re.sub(r"\s*=.*", "", item.strip(), flags=re.S)
                            for item in re.sub(r"//[^\n]*", "", body).split(",")
                        ]
                        if visible:
                            self.add(name, scopes, "enum", used, [f"{name}: " + ", ".join(filter(None, names))])
                    if opened:
                        scopes.append(opened[:2])
                        public.append(opened[2])
                        at = end + 1
                        continue
                if visible:
                    self.take(head, scopes, used, fields)
                at = matching(text, end) if brace else end + 1
        return self.entries

    def declaration(self, at):
        """(where it ends, whether by a brace that opens)."""
        depth, i, text = 0, at, self.text
        while i < len(text):
            c = text[i]
            if text.startswith("//", i):
                i = text.index("\n", i)
                continue
            depth += (c in "([") - (c in ")]")
            if depth == 0 and c == ";":
                return i, False
            if depth == 0 and c == "{":
                if re.search(r"=\s*$|\w\[\]\s*$", text[at:i]):  # an initial value
                    i = matching(text, i)
                    continue
                return i, True
            i += 1
        raise SystemExit("a declaration does not end")

    def add(self, name, scopes, kind, doc, shown, base=""):
        scope = "::".join(name for _, name in scopes if name != "lorry").replace("lorry::", "")
        entry = Entry(name, scope, kind, first_sentence(doc), shown, base)
        self.entries.append(entry)
        return entry

    def take(self, head, scopes, doc, fields):
        template = head.startswith("template")
        head = without_constraint(without_template(head))
        owner = scopes[-1][1] if scopes and scopes[-1][0] in ("class", "struct") else None
        if match := re.match(r"using (\w+) = OptimizerFor<(\w+)>$", head):
            self.add(match[1], scopes, "class", doc, [], f"OptimizerFor<{match[2]}>")
            return
        if re.match(
            r"(using|friend|static_assert|requires|extern|namespace|virtual ~|~|static constexpr|inline const\w+)\b",
            head,
        ):
            return
        head = re.sub(r"\[\[[^\]]*\]\] ?", "", head)
        match = re.match(r"(?P<result>[^()=]*?[\s&>*]|explicit )?(?P<name>~?\w+)\((?P<rest>.*)$", head)
        if not match or "operator" in head.split("(")[0]:
            if (
                owner in fields
                and "(" not in head.split("=")[0]
                and "operator" not in head
                and not head.startswith("enum")
            ):
                fields[owner].shown += self.members(head)
            return
        rest = match["rest"]
        inside = rest[: matching("(" + rest, 0, "()") - 2]
        tail = rest[len(inside) + 1 :]
        name = match["name"]
        if "delete" in tail or ("default" in tail and owner == name) or name.startswith("~") or name == "operator":
            return
        parameters = split(inside)
        if owner == name and (any(re.match(rf"(const )?{owner} ?&", p) for p in parameters) or template):
            return
        kind = "constructor" if owner == name else "method" if owner else "function"
        if owner is None and not match["result"]:
            return
        entry = self.add(name, scopes, kind, doc, [f"{name}({', '.join(map(parameter, parameters))})"])
        entry.result, entry.takes_tensor = match["result"] or "", bool(re.search(r"\b(Tensor|Operand)\b", inside))

    @staticmethod
    def members(head):
        """Fields of a struct: their names and defaults."""
        declared = re.sub(r"^(const|mutable|constexpr|inline) ", "", head)
        parts = split(declared)
        if not parts or not re.match(r"[\w:<>,\s*&]+?[\s&*>]\w+", parts[0]):
            return []
        first = re.sub(r"^.*?[\s&*>](\w+( ?\{.*\}|( = .*))?)$", r"\1", parts[0].split("=")[0].strip())
        default = parts[0].partition("=")[2].strip()
        names = [first + (f" = {default}" if default else ""), *parts[1:]]
        names = [
            re.sub(r"( =)? ?\{\}$", "", name).replace("std::numeric_limits<double>::infinity()", "INFINITY")
            for name in names
        ]
        return [name.strip() for name in names if not re.match(r"\w+_\b", name)]
