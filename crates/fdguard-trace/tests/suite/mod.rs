mod children;
mod harmless;
mod library;
mod native;
mod origin;
mod python;
mod restrained;
mod run;
