pub mod codes;
pub mod faulty;
pub mod host;
pub mod table;
pub mod types;
