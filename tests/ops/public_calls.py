#!/usr/bin/env python3
"""Writes a line for each public function of the operators' headers and each method of Tensor:

  LORRY_FUNCTION(called, room, name, type)    room::name, of the type of pointer given
  LORRY_METHOD(called, name, type)            Tensor::name, of the type of pointer given

`called` is the name that messages begin with: in-place and out= forms go by their operator's name. So the test that
includes the lines (messages_test.cpp) covers a function as soon as a header declares it. Rows of the tables are not
here: the test includes the tables.

  public_calls.py SOURCE_DIR OUTPUT
"""

import pathlib
import re
import sys

HEADERS = [
    *("ops/" + name for name in (
        "attention", "copy", "creation", "dropout", "embedding", "indexing", "joining", "loss", "matmul", "norm",
        "paged_attention", "pointwise", "promotion", "quantize", "random", "reduce", "rotary", "softmax", "sort",
        "sum_to_size", "tokens", "views")),
    "foreach/foreach", "foreach/norm", "autograd/engine", "optim/clip", "tensor/tensor",
]

# What is no operator: settings, and what rules and operators use inside, with operands that are already checked.
SKIPPED = re.compile(r"set_matmul_\w+|matmul_\w+|manual_seed|default_\w+|set_default_device|describe|to_string"
                     r"|raise_undefined|wrapped_number|without_repeats|reshape_result|embed|attention_dropout"
                     r"|\w+_backward|from_bytes|from_blob|memory_budget")
# Methods that answer for every tensor.
SKIPPED_METHODS = re.compile(r"is_leaf|grad_fn|requires_grad|defined|is_same|node|node_ptr|checked|with_sizes")
# Types that the test does not make up. Braced lists are also taken as spans.
SKIPPED_TYPES = re.compile(r"void\*|std::function|std::initializer_list|std::ostream|NestedNumbers&|View&|Stream|&&")
# No operator has a form of this name without the underscore.
NAMED_AS_WRITTEN = {"requires_grad_", "clip_grad_norm_", "clip_grad_value_", "clip_norm_"}


def without_comments(text):
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", "", text, flags=re.M)


def declarations(text):
    """(namespace or class, declaration) for what stands directly in namespaces and in class Tensor."""
    scopes, start, at = [], 0, 0
    while at < len(text):
        c = text[at]
        if c == "{":
            head = text[start:at].strip()
            namespace = re.search(r"namespace\s+([\w:]+)$", head)
            if namespace:
                scopes.append(namespace.group(1))
            elif re.search(r"^class Tensor$", head):
                scopes.append("Tensor")
            else:
                depth, begin = 1, at
                while depth:
                    at += 1
                    depth += {"{": 1, "}": -1}.get(text[at], 0)
                if head.endswith("=") or text[begin - 1] in "=(,<" or "(" in head and ")" not in head.rsplit("(", 1)[1]:
                    at += 1  # a default argument
                    continue
                if "(" in head and scopes:
                    yield scopes[:], head
                start = at = at + 1
                continue
            start = at + 1
        elif c == "}":
            if scopes:
                scopes.pop()
            start = at + 1
        elif c == ";":
            yield scopes[:], text[start:at].strip()
            start = at + 1
        at += 1


def split(parameters):
    parts, depth, start = [], 0, 0
    for i, c in enumerate(parameters):
        depth += {"<": 1, "(": 1, "{": 1, ">": -1, ")": -1, "}": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append(parameters[start:i])
            start = i + 1
    return [*parts, parameters[start:]] if parameters.strip() else []


def type_of(parameter):
    declared = parameter.split("=")[0].strip()
    return re.sub(r"\s+", " ", re.sub(r"\b(\w+)$", "", declared).strip())


def lines(source):
    for header in HEADERS:
        text = without_comments((source / "lorry" / (header + ".h")).read_text())
        for scopes, declared in declarations(text):
            if "detail" in "::".join(scopes) or not scopes:
                continue
            declared = re.sub(r"^(?:public|private):\s*", "", declared)
            match = re.match(r"(?P<result>[^()]*?[\s&>])(?P<name>\w+)\((?P<parameters>.*)\)(?P<tail>[^()]*)$", declared,
                             re.S)
            if not match or re.match(r"(using|template|inline|friend|explicit|operator|static)\b", declared):
                continue
            name, method = match["name"], scopes[-1] == "Tensor"
            if method and "const" not in match["tail"]:
                continue
            types = [type_of(p) for p in split(match["parameters"])]
            if SKIPPED.fullmatch(name) or SKIPPED_TYPES.search(", ".join(types)):
                continue
            if method and SKIPPED_METHODS.fullmatch(name):
                continue
            called = re.sub(r"(_out|_)$", "", name) if name not in NAMED_AS_WRITTEN else name
            result, types = re.sub(r"\s+", " ", match["result"].strip()), ", ".join(types)
            if method:
                yield f"LORRY_METHOD({called}, {name}, {result} (Tensor::*)({types}) const)"
            else:
                yield f"LORRY_FUNCTION({called}, {'::'.join(scopes)}, {name}, {result} (*)({types}))"


def main():
    source, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    text = "\n".join(sorted(set(lines(source)))) + "\n"
    output.write_text(text)


if __name__ == "__main__":
    main()
