mod end;
mod errors;
mod harness;
mod sockets;
