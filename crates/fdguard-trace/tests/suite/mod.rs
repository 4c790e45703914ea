mod harmless;
mod library;
mod native;
mod origin;
mod restrained;
mod run;
