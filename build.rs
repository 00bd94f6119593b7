//! Gives the shared library its soname, and keeps it loaded once it is.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or("0"), parts.next().unwrap_or("0"));
    // Before 1.0 every minor version may break binaries; from then on only a major one does.
    let soname = if major == "0" { format!("libplinth.so.0.{minor}") } else { format!("libplinth.so.{major}") };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    // The process holds functions of the library that it cannot be asked to let go: its exit and fork handlers, and
    // the host device's threads.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
