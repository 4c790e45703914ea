mod sockets;
mod end;
mod errors;
mod harness;
