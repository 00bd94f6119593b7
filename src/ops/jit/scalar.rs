//! Named scalars: what a jiterated function takes beside its tensors.

use crate::{
    error::{Error, Result},
    status::Status,
};

/// The most scalars of a function.
pub const MOST: usize = crate::driver::jit::MOST_SCALARS;

/// The kinds of scalars, the narrower ones first.
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

/// A value of any kind. What a kind does not have is 0.
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
    /// The same value as a kind that is at least as wide.
    pub fn widened(self, kind: Kind) -> Value {
        let real = if self.kind <= Kind::Int { self.integer as f64 } else { self.real };
        match kind {
            kind if kind <= self.kind => self,
            Kind::Bool | Kind::Int => Value { kind, integer: self.integer, ..Value::default() },
            Kind::Float | Kind::Complex => Value { kind, real, imaginary: self.imaginary, ..Value::default() },
        }
    }

    /// The words by which a kernel is told it.
    pub fn words(self) -> ([u64; 2], usize) {
        match self.kind {
            Kind::Bool => ([u64::from(self.integer != 0), 0], 1),
            Kind::Int => ([self.integer as u64, 0], 1),
            Kind::Float => ([self.real.to_bits(), 0], 1),
            Kind::Complex => ([self.real.to_bits(), self.imaginary.to_bits()], 2),
        }
    }
}

/// A scalar with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    /// The name by which a call gives it.
    pub name: String,
    /// Its value where a call does not give it.
    pub value: Value,
}

/// Checks what a function declares.
pub fn check(declared: &[Named]) -> Result<()> {
    let refuse = |message: String| Err(Error::new(Status::INVALID_VALUE, message));
    if declared.len() > MOST {
        return refuse(format!("a jiterated function has at most {MOST} scalars, not {}", declared.len()));
    }
    for (index, scalar) in declared.iter().enumerate() {
        if scalar.name.is_empty() {
            return refuse(format!("scalar {index} has no name"));
        }
        if declared[..index].iter().any(|before| before.name == scalar.name) {
            return refuse(format!("{} is declared twice", scalar.name));
        }
    }
    Ok(())
}

/// The values for one call: each scalar has the wider kind of its default and of what the call gives.
pub fn bind<'a>(declared: &[Named], given: impl Iterator<Item = (&'a [u8], Value)>) -> Result<[Value; MOST]> {
    let mut values = [Value::default(); MOST];
    for (value, scalar) in values.iter_mut().zip(declared) {
        *value = scalar.value;
    }
    for (name, value) in given {
        let Some(index) = declared.iter().position(|scalar| scalar.name.as_bytes() == name) else {
            return Err(undeclared(declared, name));
        };
        values[index] = value.widened(declared[index].value.kind);
    }
    Ok(values)
}

#[cold]
fn undeclared(declared: &[Named], name: &[u8]) -> Error {
    let names: Vec<&str> = declared.iter().map(|scalar| scalar.name.as_str()).collect();
    let known = if names.is_empty() { "it has no scalars".to_owned() } else { format!("it has {}", names.join(", ")) };
    let name = String::from_utf8_lossy(name);
    Error::new(Status::INVALID_VALUE, format!("{name} is not declared by the jiterated function: {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, value: Value) -> Named {
        Named { name: name.to_owned(), value }
    }

    const ONE: Value = Value { kind: Kind::Int, integer: 1, real: 0.0, imaginary: 0.0 };
    const HALF: Value = Value { kind: Kind::Float, integer: 0, real: 0.5, imaginary: 0.0 };

    #[test]
    fn values_become_wider_but_not_narrower() {
        assert_eq!(ONE.widened(Kind::Float), Value { kind: Kind::Float, real: 1.0, ..Value::default() });
        assert_eq!(HALF.widened(Kind::Int), HALF);
        assert_eq!(HALF.widened(Kind::Complex).words(), ([0.5_f64.to_bits(), 0], 2));
        let truth = Value { kind: Kind::Bool, integer: 1, ..Value::default() };
        assert_eq!(truth.widened(Kind::Complex).real, 1.0);
        assert_eq!(truth.widened(Kind::Int).words(), ([1, 0], 1));
    }

    #[test]
    fn what_a_call_gives_takes_the_place_of_defaults() {
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
