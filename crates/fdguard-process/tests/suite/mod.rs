mod end;
mod errors;
mod harness;
