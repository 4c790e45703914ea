//! Becomes the keeper of a session that this process forked before its exec, as the hidden
//! `fdguard __keeper` does. Tests run it.

fn main() {
    // The first argument is the program, the second `__keeper`.
    fdguard_process::tree::keep_here(std::env::args_os().skip(2));
}
