//! One file per promise.

mod access;
mod alertmanager;
mod detection;
mod exposition;
mod fleet;
mod fleet_engine;
mod fleet_hung;
mod full_disk;
mod harness;
mod history;
mod hostile;
mod messages;
mod packaging;
mod push;
mod push_receiver;
mod restart;
