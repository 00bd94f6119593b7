#!/usr/bin/env python3
"""Builds the conda recipe and runs its tests: `tests/package/conda.py RECIPE OUTPUT`, by the Python package py-rattler-build.

The packages that the recipe depends on (conda's compilers, CMake, make) are not installed: this machine's take their
place. So neither their names nor their versions are tested.
"""

import pathlib
import shutil
import sys

import rattler_build

# What conda-forge defines for all its recipes.
VARIANTS = {"c_compiler": ["gcc"], "c_stdlib": ["sysroot"], "rust_compiler": ["rust"]}


def without_requirements(recipe):
    del recipe["requirements"]
    for test in recipe["tests"]:
        test.pop("requirements", None)
    return recipe


def main():
    path, output = map(pathlib.Path, sys.argv[1:])

    # As it is, the recipe must be valid, and every expression in it must have a value.
    recipe = rattler_build.Stage0Recipe.from_file(path)
    rendered = recipe.render(rattler_build.VariantConfig(VARIANTS))
    if len(rendered) != 1:
        sys.exit(f"FAIL  the recipe has {len(rendered)} variants instead of 1")
    print("ok    conda: the recipe is valid")

    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    folder = output / "recipe"
    shutil.copytree(path.parent, folder)
    recipe = rattler_build.Stage0Recipe.from_dict(without_requirements(recipe.to_dict()), recipe_dir=folder)
    built = recipe.run_build(
        tool_config=rattler_build.ToolConfiguration(test_strategy="native"),
        output_dir=output,
        channels=[],
        env_isolation=rattler_build.EnvironmentIsolation.NONE,
    )
    packages = [str(package) for result in built for package in result.packages]
    if len(packages) != 1:
        sys.exit(f"FAIL  the build made {packages}")
    print("ok    conda: build and tests of the package")


main()
