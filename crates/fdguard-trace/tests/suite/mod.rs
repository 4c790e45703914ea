mod children;
mod harmless;
mod library;
mod origin;
mod python;
mod run;
