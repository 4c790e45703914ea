//! Becomes the keeper of a program that this process forked before its exec, as the hidden
//! `fdguard __keeper` does. Tests run it.

fn main() {
    fdguard_process::tree::keep_here(std::env::args_os().skip(1));
}
