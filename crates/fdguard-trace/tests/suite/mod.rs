mod children;
mod harmless;
mod library;
mod origin;
mod run;
