#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Checks a file of deploy/ against what reads it.

    tools/check_manifest.py crd FILE CRD.yaml     the schema of a Kubernetes custom resource; unknown fields are errors
    tools/check_manifest.py sky FILE              SkyPilot's schema of tasks
    tools/check_manifest.py pcluster FILE         AWS ParallelCluster's schema of clusters

Ends with 3 where the Python package is missing that knows: jsonschema and PyYAML; skypilot; aws-parallelcluster.
"""

import os
import sys


def close(schema):
    """As the API server does for fields that it does not know, but as an error."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        if schema.pop("x-kubernetes-int-or-string", False):
            schema.clear()
            schema["type"] = ["integer", "string"]
        for value in schema.values():
            close(value)
    elif isinstance(schema, list):
        for value in schema:
            close(value)


def check_crd(tree, crd_path):
    import yaml
    with open(crd_path, encoding="utf-8") as file:
        crd = yaml.safe_load(file)
    kind = crd["spec"]["names"]["kind"], crd["spec"]["group"]
    group, name = tree["apiVersion"].split("/")
    versions = {version["name"]: version["schema"]["openAPIV3Schema"] for version in crd["spec"]["versions"]}
    if (tree["kind"], group) != kind or name not in versions:
        raise ValueError(f"is {tree['kind']} of {tree['apiVersion']}, and not one of {kind}, {sorted(versions)}")
    schema = versions[name]
    close(schema)
    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    validate(tree, schema)


def validate(tree, schema):
    import jsonschema
    errors = sorted(jsonschema.Draft7Validator(schema).iter_errors(tree), key=lambda error: error.json_path)
    if errors:
        raise ValueError("; ".join(f"{error.json_path}: {error.message}" for error in errors))


def check_sky(tree):
    from sky.utils import schemas
    validate(tree, schemas.get_task_schema())
    validate(tree["resources"], schemas.get_resources_schema())


def check_pcluster(tree):
    os.environ.setdefault("AWS_DEFAULT_REGION", tree["Region"])
    from pcluster.schemas.cluster_schema import ClusterSchema
    ClusterSchema(cluster_name="mics").load(tree)


def main():
    kind, path = sys.argv[1:3]
    try:
        import yaml
        with open(path, encoding="utf-8") as file:
            tree = yaml.safe_load(file)
        {"crd": check_crd, "sky": check_sky, "pcluster": check_pcluster}[kind](tree, *sys.argv[3:])
    except ImportError as error:
        print(error, file=sys.stderr)
        return 3
    except Exception as error:  # whatever the packages raise is what is wrong with the file
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
