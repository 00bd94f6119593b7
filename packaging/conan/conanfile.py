import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import cross_building
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, rm, rmdir

required_conan_version = ">=2.0"


class PlinthConan(ConanFile):
    name = "plinth"
    description = "torch.cuda without libtorch: devices, streams, events and memory of NVIDIA GPUs behind a C ABI"
    license = "MIT OR Apache-2.0"
    topics = ("cuda", "gpu", "allocator", "pytorch")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": True}

    def set_version(self):
        # conandata.yml has one version if `make package-conan` wrote it.
        self.version = self.version or next(iter(self.conan_data["sources"]))

    def configure(self):
        self.settings.rm_safe("compiler.cppstd")
        self.settings.rm_safe("compiler.libcxx")

    def layout(self):
        cmake_layout(self, src_folder="src")

    def package_id(self):
        # Cargo builds the library, always with its release profile; the interface is C.
        self.info.settings.rm_safe("compiler")
        self.info.settings.rm_safe("build_type")

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("plinth is for Linux on x86_64 and armv8")

    def validate_build(self):
        if cross_building(self):
            raise ConanInvalidConfiguration("this recipe does not cross-build plinth")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        # The source archive contains all crates. Rust itself is not a Conan package: rustup installs it.
        toolchain.cache_variables["PLINTH_CARGO_FLAGS"] = "--locked;--offline"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        share = os.path.join(self.package_folder, "share")
        copy(self, "*", os.path.join(share, "licenses", "plinth"), os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(share, "licenses"))
        # What `make uninstall` would need.
        rmdir(self, os.path.join(share, "plinth"))
        # Conan generates these for the consumer's generator.
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))
        rm(self, "libplinth.a" if self.options.shared else "libplinth.so*", os.path.join(self.package_folder, "lib"))

    def package_info(self):
        self.cpp_info.libs = ["plinth"]
        self.cpp_info.set_property("cmake_file_name", "plinth")
        self.cpp_info.set_property("cmake_target_name", "plinth::plinth")
        self.cpp_info.set_property("pkg_config_name", "plinth")
        if not self.options.shared:
            self.cpp_info.set_property("cmake_target_aliases", ["plinth::static"])
            self.cpp_info.system_libs = ["dl", "gcc_s", "util", "rt", "pthread", "m"]
