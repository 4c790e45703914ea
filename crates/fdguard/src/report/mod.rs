//! Converts values to text: no input and no exit codes here.

pub mod annotations;
pub mod counts;
pub mod detail;
pub mod diagnosis;
pub mod difference;
pub mod doctor;
pub mod document;
pub mod explanation;
pub mod host;
pub mod html;
pub mod human;
pub mod json;
pub mod junit;
pub mod lsof_fields;
pub mod phases;
pub mod playbook;
pub mod problem;
pub mod rules;
pub mod sarif;
pub mod state_line;
pub mod style;
pub mod table;
pub(crate) mod text;
#[cfg(feature = "trace")]
pub mod trace;
pub(crate) mod wrap;
