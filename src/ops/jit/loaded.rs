//! Loaded kernels, by source. They stay loaded, because graphs may refer to them.

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
use parking_lot::Mutex;
use std::{collections::HashMap, ffi::CString};

/// The kernels of each device, by the digest of compiler and source. The lock is held during compilation, so that no
/// source is compiled twice.
static LOADED: Mutex<Option<HashMap<(Digest, u32), Function>>> = Mutex::new(None);

/// Returns a source's kernel with this name, loaded on a device; compiles and loads it if necessary.
pub fn get_or_load(runtime: &Runtime, device: &Device, source: &str, name: &str) -> Result<Function> {
    let compiler = Compiler::for_device(runtime, device)?;
    let key = sha256(format!("{}\n{source}", compiler.identity()).as_bytes());
    let mut loaded = LOADED.lock();
    let loaded = loaded.get_or_insert_default();
    if let Some(function) = loaded.get(&(key, device.ordinal)) {
        return Ok(*function);
    }
    let disk = Cache::get()?;
    let file = file_name(name, compiler.target(), &key);
    // If the driver rejects an intact cached image, it was made for another driver; compile it again.
    let cached = disk.read(&file, &key).and_then(|bytes| {
        // SAFETY: the checksum shows that these are the bytes that a compiler once made of this source.
        #[allow(unsafe_code)]
        let image = unsafe { Image::new(bytes) };
        load(runtime, device, &image, name).ok()
    });
    let function = match cached {
        Some(function) => function,
        None => {
            let image = compiler.compile(source)?;
            let function = load(runtime, device, &image, name)?;
            // Ignore an error: without a cache file the next process only compiles again.
            let _ = disk.write(&file, &key, image.bytes());
            function
        }
    };
    loaded.insert((key, device.ordinal), function);
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
