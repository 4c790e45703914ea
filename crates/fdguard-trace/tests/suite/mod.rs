mod harmless;
mod library;
mod native;
mod origin;
mod run;
