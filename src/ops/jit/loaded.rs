//! Kernels that are loaded, from their source to the driver's handle. They stay loaded: graphs may have them.

use super::{
    cache::{Cache, file_name},
    compiler::Compiler,
    digest::{Digest, sha256},
};
use crate::{
    driver::{Function, Image},
    error::{Error, Result},
    runtime::{Runtime, device::Device},
    status::Status,
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::{collections::HashMap, ffi::CString};

/// The kernels of each device by what they were made of. Who compiles holds the lock, so that nothing is compiled twice.
static LOADED: Mutex<Option<HashMap<(Digest, u32), Function>>> = Mutex::new(None);

fn disk() -> &'static Cache {
    static DISK: OnceCell<Cache> = OnceCell::new();
    DISK.get_or_init(Cache::of_environment)
}

/// The kernel of this name of a source, loaded on a device by now at the latest.
pub fn kernel(runtime: &Runtime, device: &Device, source: &str, name: &str) -> Result<Function> {
    let compiler = Compiler::of(runtime, device)?;
    let made_for = sha256(format!("{}\n{source}", compiler.identity()).as_bytes());
    let mut loaded = LOADED.lock();
    let loaded = loaded.get_or_insert_default();
    if let Some(function) = loaded.get(&(made_for, device.ordinal)) {
        return Ok(*function);
    }
    let file = file_name(name, compiler.target(), &made_for);
    // A kept image that is whole, and that the driver will not take, was made for another driver: it is made anew.
    let kept =
        disk().read(&file, &made_for).and_then(|bytes| load(runtime, device, &Image::from_compiler(bytes), name).ok());
    let function = match kept {
        Some(function) => function,
        None => {
            let image = compiler.compile(source)?;
            let function = load(runtime, device, &image, name)?;
            // Without a cache the next run compiles again, and that is all.
            let _ = disk().write(&file, &made_for, image.bytes());
            function
        }
    };
    loaded.insert((made_for, device.ordinal), function);
    Ok(function)
}

fn load(runtime: &Runtime, device: &Device, image: &Image, name: &str) -> Result<Function> {
    let symbol = CString::new(name).map_err(|_| Error::new(Status::INVALID_VALUE, "a kernel's name holds a NUL"))?;
    let loaded = device.with_context(&runtime.driver, |driver| {
        let module = driver.with_relaxed_capture(|| driver.module_load_image(image))??;
        Ok(driver.module_function(module, &symbol)?)
    });
    loaded.map_err(|error| error.context(format_args!("loading {name}")))
}
