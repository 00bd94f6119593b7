"""Marks a wheel that holds the library as one for the library's platform. Hatchling calls it; it is not shipped."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelTag(BuildHookInterface):
    """Sets the wheel's tag from PLINTH_WHEEL_PLATFORM. ctypes loads the library, so any Python 3 will do."""

    def initialize(self, version, build_data):
        platform = os.environ.get("PLINTH_WHEEL_PLATFORM")
        if platform:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
            build_data["sbom_files"] = ["plinth.cdx.json", "plinth-tool.cdx.json"]
