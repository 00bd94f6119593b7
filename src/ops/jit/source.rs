//! Generates the source of a kernel: the iteration over the tensors, the user's function, and the entry point.

use super::{
    layout::KernelClass,
    parse::Entry,
    scalar::{Kind, MAX_SCALARS},
};
use crate::{
    base::embedded::{CompressedText, embedded_text},
    error::Result,
    runtime::tensor::ElementType,
};
use std::fmt::Write;

const BASE: CompressedText = embedded_text!("base.h");
const COMPLEX: CompressedText = embedded_text!("complex.h");
const WALK: CompressedText = embedded_text!("walk.h");
const LAUNCH: CompressedText = embedded_text!("launch.h");

/// The file name of the user's source in the compilers' messages.
pub const NAME: &str = "jiterator";

/// The specification of a kernel, except for the device.
pub struct KernelSpec<'a> {
    /// The user's source.
    pub code: &'a str,
    /// Its entry.
    pub entry: &'a Entry,
    /// The number of outputs, all of the common type. If there are several, they are parameters of the function.
    pub outputs: usize,
    /// Whether the outputs are parameters.
    pub by_reference: bool,
    /// The element types of the inputs.
    pub inputs: &'a [ElementType],
    /// The common type of the inputs.
    pub common: ElementType,
    /// The kinds of the scalars.
    pub scalars: &'a [Kind],
    /// The memory layout of the elements.
    pub class: KernelClass,
}

/// Returns the name of an entry's kernel.
pub fn kernel_name(entry: &Entry) -> String {
    format!("plinth_jit_{}", entry.name)
}

fn element(element: ElementType) -> &'static str {
    match element {
        ElementType::F16 => "f16",
        ElementType::Bf16 => "bf16",
        ElementType::F32 => "float",
        ElementType::F64 => "double",
        ElementType::U8 => "uint8_t",
        ElementType::U16 => "uint16_t",
        ElementType::U32 => "uint32_t",
        ElementType::U64 => "uint64_t",
        ElementType::I8 => "int8_t",
        ElementType::I16 => "int16_t",
        ElementType::I32 => "int32_t",
        ElementType::I64 => "int64_t",
        ElementType::Bool => "bool8",
        ElementType::Complex64 => "complex<float>",
        ElementType::Complex128 => "complex<double>",
        // The promotion of types rejects these with an error.
        ElementType::F8E4M3 | ElementType::F8E5M2 => "uint8_t",
    }
}

/// Returns a C++ function that maps an array's index to a value.
fn array_function(name: &str, values: impl Iterator<Item = u64>) -> String {
    let cases: String = values.enumerate().map(|(array, value)| format!("plinth_a == {array} ? {value} : ")).collect();
    format!("  PLINTH_INLINE static constexpr u32 {name}(u32 plinth_a) {{ return {cases}1; }}\n")
}

impl KernelSpec<'_> {
    fn arrays(&self) -> impl Iterator<Item = ElementType> {
        std::iter::repeat_n(self.common, self.outputs).chain(self.inputs.iter().copied())
    }

    /// Returns the source, for both compilers.
    pub fn source(&self) -> Result<String> {
        let mut text = BASE.decompress()?;
        let entry = kernel_name(self.entry);
        text += &COMPLEX.decompress()?;
        text += &WALK.decompress()?;
        // Writing to a String cannot fail.
        let _ = write!(text, "#line 1 \"{NAME}\"\n{}\n#line 1 \"{entry}\"\n", self.code);
        let _ = write!(text, "#define PLINTH_ENTRY {entry}\n#define PLINTH_ENTRY_BYTES {entry}_bytes\n");
        text += "namespace plinth_jit {\nstruct kernel {\n";
        let _ = writeln!(text, "  typedef {} common;\n  typedef compute<common>::type value;", element(self.common));
        let _ = writeln!(
            text,
            "  static constexpr u32 ARRAYS = {}, OUTPUTS = {}, VECTOR = {}, ROUNDS = {}, RANK = {};",
            self.outputs + self.inputs.len(),
            self.outputs,
            self.class.vector,
            self.class.rounds(self.outputs + self.inputs.len()),
            self.class.rank,
        );
        text += &array_function("size", self.arrays().map(ElementType::bytes));
        text += &array_function("alignment", self.arrays().map(ElementType::alignment));
        text += "  struct scalars {\n";
        for (index, kind) in self.scalars.iter().enumerate() {
            let field_type = match kind {
                Kind::Bool => "u64",
                Kind::Int => "::int64_t",
                Kind::Float => "double",
                Kind::Complex => "complex<double>",
            };
            let _ = writeln!(text, "    {field_type} plinth_s{index};");
        }
        text += if self.scalars.is_empty() { "    u64 plinth_none;\n  };\n" } else { "  };\n" };
        self.group(&mut text);
        text += "};\n}  // namespace plinth_jit\n";
        text += &LAUNCH.decompress()?;
        Ok(text)
    }

    fn group(&self, text: &mut String) {
        *text += "  template <u32 plinth_n>\n  struct group {\n";
        for output in 0..self.outputs {
            let _ = writeln!(text, "    pack<common, plinth_n> plinth_o{output};");
        }
        for (input, of) in self.inputs.iter().enumerate() {
            let _ = writeln!(text, "    pack<{}, plinth_n> plinth_i{input};", element(*of));
        }
        *text += "    PLINTH_INLINE void read(char *const (&plinth_at)[ARRAYS], u32 plinth_repeats) {\n";
        for (input, of) in self.inputs.iter().enumerate() {
            let _ = writeln!(
                text,
                "      plinth_i{input} = fetch_or_repeat<{}, plinth_n>(plinth_at[{}], plinth_repeats >> {input} & 1);",
                element(*of),
                self.outputs + input,
            );
        }
        *text += "    }\n    PLINTH_INLINE void apply(const scalars &plinth_given) {\n      (void)plinth_given;\n";
        *text += "      PLINTH_UNROLL\n      for (u32 plinth_k = 0; plinth_k < plinth_n; plinth_k++) {\n";
        let mut arguments: Vec<String> = Vec::with_capacity(self.inputs.len() + MAX_SCALARS + self.outputs);
        for (input, of) in self.inputs.iter().enumerate() {
            arguments.push(format!("promoted<common, {}>::of(plinth_i{input}.at[plinth_k])", element(*of)));
        }
        for (index, kind) in self.scalars.iter().enumerate() {
            let nonzero = if *kind == Kind::Bool { " != 0" } else { "" };
            arguments.push(format!("plinth_given.plinth_s{index}{nonzero}"));
        }
        let name = &self.entry.name;
        if self.by_reference {
            for output in 0..self.outputs {
                let _ = writeln!(text, "        value plinth_r{output}{{}};");
                arguments.push(format!("plinth_r{output}"));
            }
            let _ = writeln!(text, "        ::{name}<value>({});", arguments.join(", "));
            for output in 0..self.outputs {
                let _ = writeln!(text, "        plinth_o{output}.at[plinth_k] = stored<common>(plinth_r{output});");
            }
        } else {
            let called = arguments.join(", ");
            let _ = writeln!(text, "        plinth_o0.at[plinth_k] = stored<common>(::{name}<value>({called}));");
        }
        *text += "      }\n    }\n    PLINTH_INLINE void write(char *const (&plinth_at)[ARRAYS]) const {\n";
        for output in 0..self.outputs {
            let _ = writeln!(text, "      put(plinth_at[{output}], plinth_o{output});");
        }
        *text += "    }\n  };\n";
    }
}
