mod containers;
mod killed;
mod refusals;
mod restart;
mod runtimes;
mod threads;
mod victim;
