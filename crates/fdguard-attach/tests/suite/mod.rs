mod killed;
mod refusals;
mod restart;
mod threads;
mod victim;
