"""Reads {"schema": ..., "instance": ...} per line; answers each with ok, or what is wrong.

An instance that is absent asks whether the schema is one."""

import json
import sys

from jsonschema import Draft202012Validator

for line in sys.stdin:
    case = json.loads(line)
    try:
        Draft202012Validator.check_schema(case["schema"])
        validator = Draft202012Validator(case["schema"])
        wrong = [e.json_path + ": " + e.message for e in validator.iter_errors(case["instance"])] if "instance" in case else []
        print(wrong[0].replace("\n", " ")[:300] if wrong else "ok")
    except Exception as error:
        print("the schema is none: " + repr(error)[:300].replace("\n", " "))
