"""Prints the crates in the program as a CycloneDX 1.5 document, from cargo's metadata and Cargo.lock.

Only crates that are linked for the target are listed: no build scripts, procedural macros or tests.
"""

import json
import subprocess
import sys
import tomllib

ROOT = "saltern"


def linked(metadata):
    """Ids of the packages that the root package links."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    macros = {
        id for id, package in packages.items() if any("proc-macro" in target["kind"] for target in package["targets"])
    }
    root = next(id for id, package in packages.items() if package["name"] == ROOT)
    found, queue = {root}, [root]
    while queue:
        for dependency in nodes[queue.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_linked and dependency["pkg"] not in found | macros:
                found.add(dependency["pkg"])
                queue.append(dependency["pkg"])
    return root, [packages[id] for id in found]


def component(package, checksums):
    name, version = package["name"], package["version"]
    out = {"type": "library", "name": name, "version": version, "bom-ref": f"{name}@{version}"}
    if package["license"]:
        out["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package["source"]:
        out["purl"] = f"pkg:cargo/{name}@{version}"
    if checksum := checksums.get((name, version)):
        out["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return out


def main(target):
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    with open("Cargo.lock", "rb") as lock:
        locked = tomllib.load(lock)["package"]
    checksums = {(crate["name"], crate["version"]): crate.get("checksum") for crate in locked}
    root, packages = linked(metadata)
    components = [component(package, checksums) for package in packages if package["id"] != root]
    program = next(package for package in packages if package["id"] == root)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**component(program, checksums), "type": "application"}},
        "components": sorted(components, key=lambda one: (one["name"], one["version"])),
    }
    json.dump(document, sys.stdout, indent=1)
    print()


main(sys.argv[1])
