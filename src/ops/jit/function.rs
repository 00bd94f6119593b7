//! Jiterated functions: their handles, and calls.
//!
//! A call looks up its kernel by the types of its tensors, the kinds of its scalars, the memory layout and the device,
//! in the function's hash table. Entries are never removed, so lookups take no lock.

use super::{
    layout::{self, IterationSpace, KernelClass, broadcast},
    loaded,
    parse::{self, Entry},
    promote,
    scalar::{self, Kind, MAX_SCALARS, NamedScalar, Value},
    source::{KernelSpec, kernel_name},
};
use crate::{
    base::handle::{Kind as HandleKind, ReferenceTable},
    driver::{Function, jit::Parameters, random::MAX_RANK},
    error::{Context, Error, Result},
    observe,
    runtime::{
        self, Runtime,
        tensor::{ElementType, Tensor},
    },
    status::Status,
    stream::{self, Stream},
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// The maximum number of inputs, and of outputs.
pub const MAX_TENSORS: usize = 8;
/// The size of a function's lock-free table of kernels.
const SLOTS: usize = 64;
/// The maximum probe distance in the table.
const PROBES: usize = 8;

/// An elementwise function with a user's source.
pub struct Jiterated {
    code: String,
    entry: Entry,
    inputs: usize,
    outputs: usize,
    by_reference: bool,
    scalars: Vec<NamedScalar>,
    kernels: [OnceCell<(Key, Function)>; SLOTS],
    /// Kernels that did not fit into the table.
    others: Mutex<HashMap<Key, Function>>,
}

/// The key of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    /// The types of the inputs, followed by the common type: four bits each.
    types: u64,
    /// The device, the class, and two bits for the kind of each scalar.
    rest: u64,
}

impl Key {
    fn of(device: u32, class: KernelClass, common: ElementType, inputs: &[Tensor], scalars: &[Value]) -> Key {
        let types = inputs.iter().fold(0, |bits, input| bits << 4 | input.element as u64);
        let kinds = scalars.iter().fold(0, |bits, scalar| bits << 2 | scalar.kind as u64);
        let class = u64::from(class.rank) << 8 | u64::from(class.vector);
        Key { types: types << 4 | common as u64, rest: kinds << 32 | u64::from(device) << 16 | class }
    }

    fn home_slot(self) -> usize {
        let mixed = (self.types ^ self.rest.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 58) as usize % SLOTS
    }
}

static FUNCTIONS: ReferenceTable<Arc<Jiterated>> = ReferenceTable::new(HandleKind::JitFunction);

/// Creates a function from a user's source and returns its handle. With `outputs`, its outputs are its last parameters;
/// otherwise its return value.
pub fn create(code: &str, outputs: Option<usize>, scalars: Vec<NamedScalar>) -> Result<u64> {
    let invalid = |message: String| Err(Error::new(Status::INVALID_VALUE, message));
    scalar::check(&scalars)?;
    let entry = parse::entry(code)?;
    if let Some(count) = outputs
        && !(1..=MAX_TENSORS).contains(&count)
    {
        return invalid(format!("a jiterated function has 1 to {MAX_TENSORS} outputs, not {count}"));
    }
    if entry.is_void != outputs.is_some() {
        let (is, instead) = match outputs {
            Some(_) => ("returns something", "void, and its last parameters are its outputs"),
            None => ("returns nothing", "its one output"),
        };
        return invalid(format!("{} {is}; it must return {instead}", entry.name));
    }
    let non_inputs = scalars.len() + outputs.unwrap_or(0);
    let inputs = entry.parameters.saturating_sub(non_inputs);
    if !(1..=MAX_TENSORS).contains(&inputs) {
        return invalid(format!(
            "{} has {} parameters, of which {} are scalars and {} outputs; that leaves {} inputs, and there must be 1 to \
             {MAX_TENSORS}",
            entry.name,
            entry.parameters,
            scalars.len(),
            outputs.unwrap_or(0),
            entry.parameters as i64 - non_inputs as i64,
        ));
    }
    let function = Arc::new(Jiterated {
        code: code.to_owned(),
        entry,
        inputs,
        outputs: outputs.unwrap_or(1),
        by_reference: outputs.is_some(),
        scalars,
        kernels: [const { OnceCell::new() }; SLOTS],
        others: Mutex::new(HashMap::new()),
    });
    FUNCTIONS.insert(function)
}

/// Destroys a function. Its kernels stay loaded.
pub fn destroy(handle: u64) -> Result<()> {
    FUNCTIONS.remove(handle).map(drop)
}

/// Returns the type and the shape of the outputs of a call with these inputs.
pub fn result_of(handle: u64, inputs: &[Tensor]) -> Result<(ElementType, [i64; MAX_RANK], usize)> {
    let function = FUNCTIONS.get(handle)?;
    function.check_count("inputs", inputs.len(), function.inputs)?;
    let (sizes, rank) = broadcast(inputs)?;
    Ok((promote::common(inputs)?, sizes, rank))
}

/// Calls a function, which writes its outputs in the stream.
pub fn call<'a>(
    handle: u64,
    inputs: &[Tensor],
    outputs: &[Tensor],
    passed: impl Iterator<Item = (&'a [u8], Value)>,
    stream: usize,
) -> Result<()> {
    let function = FUNCTIONS.get(handle)?;
    let runtime = runtime::ready()?;
    function.check(inputs, outputs).context(|| &function.entry.name)?;
    let common = promote::common(inputs).context(|| &function.entry.name)?;
    for (number, output) in outputs.iter().enumerate() {
        if output.element != common {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!(
                    "{}: output {number} is of {}, but its inputs have {common} in common, and an output must be of that type",
                    function.entry.name, output.element
                ),
            ));
        }
    }
    let values = scalar::bind(&function.scalars, passed)?;
    let values = &values[..function.scalars.len()];
    let stream = stream::resolve_same(runtime, stream, outputs[0].device)?;
    if outputs[0].numel == 0 {
        return Ok(());
    }
    function.launch(runtime, stream, common, inputs, outputs, values)
}

impl Jiterated {
    fn check_count(&self, what: &str, passed: usize, expected: usize) -> Result<()> {
        if passed == expected {
            return Ok(());
        }
        let message = format!("{} takes {expected} {what}, not {passed}", self.entry.name);
        Err(Error::new(Status::INVALID_VALUE, message))
    }

    fn check(&self, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        self.check_count("inputs", inputs.len(), self.inputs)?;
        self.check_count("outputs", outputs.len(), self.outputs)?;
        let device = outputs[0].device;
        if let Some(other) = inputs.iter().chain(outputs).find(|tensor| tensor.device != device) {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("its tensors are on devices {device} and {}", other.device),
            ));
        }
        let (sizes, rank) = broadcast(inputs)?;
        for (number, output) in outputs.iter().enumerate() {
            if output.shape() != &sizes[..rank] {
                return Err(Error::new(
                    Status::INVALID_VALUE,
                    format!(
                        "output {number} is of shape {:?}, but the inputs give {:?}",
                        output.shape(),
                        &sizes[..rank]
                    ),
                ));
            }
        }
        Ok(())
    }

    fn launch(
        &self,
        runtime: &Runtime,
        stream: Stream,
        common: ElementType,
        inputs: &[Tensor],
        outputs: &[Tensor],
        values: &[Value],
    ) -> Result<()> {
        // Not before the kernel is there: a call that compiles none has no accesses.
        let report = || {
            observe::operation_with(runtime, stream, &self.entry.name, |operands| {
                inputs.iter().for_each(|input| observe::operands(input, observe::Kind::Read, operands));
                outputs.iter().for_each(|output| observe::operands(output, observe::Kind::Write, operands));
            })
        };
        let launch = |function: Function, blocks: u32, parameters: &mut Parameters| {
            if values.is_empty() {
                // A kernel without scalars has one unused word instead.
                parameters.push(0);
            }
            for value in values {
                let (words, used) = value.words();
                words[..used].iter().for_each(|word| parameters.push(*word));
            }
            runtime.in_stream(stream, |driver, raw| Ok(driver.launch_jit(function, blocks, parameters, raw)?))
        };
        let mut parameters = Parameters::new();
        let launched = if let Some((class, blocks)) = layout::dense(outputs, inputs, &mut parameters) {
            let function = self.kernel(runtime, stream.device(), class, common, inputs, values)?;
            report().and_then(|()| launch(function, blocks, &mut parameters))
        } else {
            let space = IterationSpace::of(outputs, inputs).context(|| &self.entry.name)?;
            let class = space.class();
            let function = self.kernel(runtime, stream.device(), class, common, inputs, values)?;
            report()?;
            space.for_each_launch(class, &mut |blocks, parameters| launch(function, blocks, parameters))
        };
        launched.map_err(|error| {
            error.context(format_args!("{} of {} elements of {common}", self.entry.name, outputs[0].numel))
        })
    }

    fn kernel(
        &self,
        runtime: &Runtime,
        device: u32,
        class: KernelClass,
        common: ElementType,
        inputs: &[Tensor],
        values: &[Value],
    ) -> Result<Function> {
        let key = Key::of(device, class, common, inputs, values);
        match self.find(key) {
            Some(function) => Ok(function),
            None => self.make(runtime, key, device, class, common, inputs, values),
        }
    }

    #[inline]
    fn find(&self, key: Key) -> Option<Function> {
        for probe in 0..PROBES {
            match self.kernels[(key.home_slot() + probe) % SLOTS].get() {
                Some((known, function)) if *known == key => return Some(*function),
                Some(_) => {}
                None => return None,
            }
        }
        self.others.lock().get(&key).copied()
    }

    #[cold]
    #[allow(clippy::too_many_arguments)] // the specification of a kernel
    fn make(
        &self,
        runtime: &Runtime,
        key: Key,
        device: u32,
        class: KernelClass,
        common: ElementType,
        inputs: &[Tensor],
        values: &[Value],
    ) -> Result<Function> {
        let types: Vec<ElementType> = inputs.iter().map(|input| input.element).collect();
        let kinds: Vec<Kind> = values.iter().map(|value| value.kind).collect();
        let spec = KernelSpec {
            code: &self.code,
            entry: &self.entry,
            outputs: self.outputs,
            by_reference: self.by_reference,
            inputs: &types,
            common,
            scalars: &kinds,
            class,
        };
        let device = runtime.device(device as i32)?;
        let made = loaded::get_or_load(runtime, device, &spec.source()?, &kernel_name(&self.entry));
        let function = made.map_err(|error| {
            let types: Vec<String> = types.iter().map(ElementType::to_string).collect();
            error.context(format_args!("{} for inputs of {}", self.entry.name, types.join(", ")))
        })?;
        for probe in 0..PROBES {
            let slot = &self.kernels[(key.home_slot() + probe) % SLOTS];
            let (kept, _) = slot.get_or_init(|| (key, function));
            if *kept == key {
                return Ok(function);
            }
        }
        self.others.lock().insert(key, function);
        Ok(function)
    }
}

const _: () = assert!(MAX_SCALARS * 2 <= 32 && MAX_TENSORS * 4 + 4 <= 64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Span;

    #[test]
    fn invalid_functions_are_rejected() {
        let one = |name: &str| NamedScalar { name: name.to_owned(), value: Value::default() };
        for (code, outputs, scalars, part) in [
            ("template <typename T> T f(T x) { return x; }", Some(1), vec![], "f returns something"),
            ("template <typename T> void f(T x, T& y) { y = x; }", None, vec![], "f returns nothing"),
            ("template <typename T> void f(T x, T& y) { y = x; }", Some(9), vec![], "1 to 8 outputs, not 9"),
            ("template <typename T> void f(T x, T& y) { y = x; }", Some(2), vec![], "leaves 0 inputs"),
            ("template <typename T> T f(T x) { return x; }", None, vec![one("a"), one("b")], "leaves -1 inputs"),
            (
                "template <typename T> T f(T a, T b, T c, T d, T e, T f, T g, T h, T i) { return a; }",
                None,
                vec![],
                "9 inputs",
            ),
            ("int", None, vec![], "no entry"),
        ] {
            let error = create(code, outputs, scalars).unwrap_err();
            assert_eq!(error.status(), Status::INVALID_VALUE);
            assert!(error.message().contains(part), "{code}: {error}");
        }
        let handle = create("template <typename T> T f(T x) { return x; }", None, vec![]).unwrap();
        destroy(handle).unwrap();
        assert!(destroy(handle).unwrap_err().message().contains("was a jiterated function, but is destroyed"));
    }

    #[test]
    fn keys_are_distinct() {
        let tensor = |element| Tensor::new(Span::dangling(4096), element, 0, &[3], None).unwrap();
        let (dense, any) = (KernelClass { vector: 4, rank: 0 }, KernelClass { vector: 4, rank: 25 });
        let value = |kind| Value { kind, ..Value::default() };
        let key = |device, class, inputs: &[ElementType], kinds: &[Kind]| {
            let inputs: Vec<Tensor> = inputs.iter().map(|element| tensor(*element)).collect();
            let values: Vec<Value> = kinds.iter().map(|kind| value(*kind)).collect();
            Key::of(device, class, ElementType::F32, &inputs, &values)
        };
        use ElementType::{F16, F32};
        let keys = [
            key(0, dense, &[F32, F32], &[]),
            key(1, dense, &[F32, F32], &[]),
            key(0, any, &[F32, F32], &[]),
            key(0, dense, &[F32, F16], &[]),
            key(0, dense, &[F16, F32], &[]),
            key(0, dense, &[F32, F32], &[Kind::Int]),
            key(0, dense, &[F32, F32], &[Kind::Float; 16]),
            key(63, any, &[F32; 8], &[Kind::Complex; 16]),
        ];
        for (at, one) in keys.iter().enumerate() {
            assert!(keys[..at].iter().all(|other| other != one), "{one:?}");
        }
    }
}
