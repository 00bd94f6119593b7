pub mod api {}
