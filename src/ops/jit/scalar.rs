//! NamedScalar scalars: the parameters of a jiterated function other than its tensors.

use crate::{
    error::{Error, Result},
    status::Status,
};

/// The maximum number of scalars of a function.
pub const MAX_SCALARS: usize = crate::driver::jit::MAX_SCALARS;

/// The kinds of scalars, in the order of their width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Kind {
    /// true or false.
    #[default]
    Bool = 0,
    /// A 64-bit integer.
    Int = 1,
    /// A double.
    Float = 2,
    /// Two doubles.
    Complex = 3,
}

/// A value of any kind. Fields that the kind does not use are 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Value {
    /// Its kind.
    pub kind: Kind,
    /// A bool or an integer.
    pub integer: i64,
    /// A double, or the real part.
    pub real: f64,
    /// The imaginary part.
    pub imaginary: f64,
}

impl Value {
    /// Converts the value to a kind. A value of a wider kind is unchanged.
    pub fn widened(self, kind: Kind) -> Value {
        let real = if self.kind <= Kind::Int { self.integer as f64 } else { self.real };
        match kind {
            kind if kind <= self.kind => self,
            Kind::Bool | Kind::Int => Value { kind, integer: self.integer, ..Value::default() },
            Kind::Float | Kind::Complex => Value { kind, real, imaginary: self.imaginary, ..Value::default() },
        }
    }

    /// Returns the 64-bit words by which the value is passed to a kernel, and their number.
    pub fn words(self) -> ([u64; 2], usize) {
        match self.kind {
            Kind::Bool => ([u64::from(self.integer != 0), 0], 1),
            Kind::Int => ([self.integer as u64, 0], 1),
            Kind::Float => ([self.real.to_bits(), 0], 1),
            Kind::Complex => ([self.real.to_bits(), self.imaginary.to_bits()], 2),
        }
    }
}

/// A scalar with its name and default.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedScalar {
    /// The name by which a call refers to it.
    pub name: String,
    /// Its default value.
    pub value: Value,
}

/// Checks the scalars that a function declares.
pub fn check(declared: &[NamedScalar]) -> Result<()> {
    let invalid = |message: String| Err(Error::new(Status::INVALID_VALUE, message));
    if declared.len() > MAX_SCALARS {
        return invalid(format!("a jiterated function has at most {MAX_SCALARS} scalars, not {}", declared.len()));
    }
    for (index, scalar) in declared.iter().enumerate() {
        if scalar.name.is_empty() {
            return invalid(format!("scalar {index} has no name"));
        }
        if declared[..index].iter().any(|before| before.name == scalar.name) {
            return invalid(format!("{} is declared twice", scalar.name));
        }
    }
    Ok(())
}

/// Returns the values for one call: each scalar has the wider kind of its default and the passed value.
pub fn bind<'a>(
    declared: &[NamedScalar],
    passed: impl Iterator<Item = (&'a [u8], Value)>,
) -> Result<[Value; MAX_SCALARS]> {
    let mut values = [Value::default(); MAX_SCALARS];
    for (value, scalar) in values.iter_mut().zip(declared) {
        *value = scalar.value;
    }
    for (name, value) in passed {
        let Some(index) = declared.iter().position(|scalar| scalar.name.as_bytes() == name) else {
            return Err(undeclared(declared, name));
        };
        values[index] = value.widened(declared[index].value.kind);
    }
    Ok(values)
}

#[cold]
fn undeclared(declared: &[NamedScalar], name: &[u8]) -> Error {
    let names: Vec<&str> = declared.iter().map(|scalar| scalar.name.as_str()).collect();
    let known = if names.is_empty() { "it has no scalars".to_owned() } else { format!("it has {}", names.join(", ")) };
    let name = String::from_utf8_lossy(name);
    Error::new(Status::INVALID_VALUE, format!("{name} is not declared by the jiterated function: {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, value: Value) -> NamedScalar {
        NamedScalar { name: name.to_owned(), value }
    }

    const ONE: Value = Value { kind: Kind::Int, integer: 1, real: 0.0, imaginary: 0.0 };
    const HALF: Value = Value { kind: Kind::Float, integer: 0, real: 0.5, imaginary: 0.0 };

    #[test]
    fn values_become_wider_but_not_narrower() {
        assert_eq!(ONE.widened(Kind::Float), Value { kind: Kind::Float, real: 1.0, ..Value::default() });
        assert_eq!(HALF.widened(Kind::Int), HALF);
        assert_eq!(HALF.widened(Kind::Complex).words(), ([0.5_f64.to_bits(), 0], 2));
        let boolean = Value { kind: Kind::Bool, integer: 1, ..Value::default() };
        assert_eq!(boolean.widened(Kind::Complex).real, 1.0);
        assert_eq!(boolean.widened(Kind::Int).words(), ([1, 0], 1));
    }

    #[test]
    fn passed_values_override_defaults() {
        let declared = [named("alpha", HALF), named("n", ONE)];
        let bound = bind(&declared, [(&b"n"[..], HALF), (&b"alpha"[..], ONE)].into_iter()).unwrap();
        assert_eq!(bound[0], ONE.widened(Kind::Float));
        assert_eq!(bound[1], HALF);
        assert_eq!(bind(&declared, std::iter::empty()).unwrap()[..2], [HALF, ONE]);
        let error = bind(&declared, [(&b"beta"[..], ONE)].into_iter()).unwrap_err();
        assert!(error.message().contains("beta is not declared by the jiterated function: it has alpha, n"));
    }

    #[test]
    fn declarations_are_checked() {
        assert!(check(&[named("a", ONE), named("a", ONE)]).unwrap_err().message().contains("declared twice"));
        assert!(check(&[named("", ONE)]).unwrap_err().message().contains("no name"));
        assert!(check(&vec![named("a", ONE); 17]).unwrap_err().message().contains("at most 16"));
    }
}
