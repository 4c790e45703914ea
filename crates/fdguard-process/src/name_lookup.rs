//! Name lookups of a static binary.
//!
//! glibc resolves host names with the services of `/etc/nsswitch.conf`. A static program contains
//! two of them, `files` and `dns`; any other one is a shared library that glibc would load together
//! with the machine's own C library, and two versions of it in one process crash. So a static
//! binary asks only the two that it contains: a name that only another service knows is not
//! resolved, and the caller reports that.

#![cfg_attr(
    all(target_env = "gnu", target_feature = "crt-static"),
    expect(unsafe_code, reason = "calls a function of the C library")
)]

/// Restricts lookups to what this binary contains. To be called once, before there are threads; a
/// dynamic binary does nothing here.
pub fn restrict() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        unsafe extern "C" {
            fn __nss_configure_lookup(
                database: *const core::ffi::c_char,
                services: *const core::ffi::c_char,
            ) -> core::ffi::c_int;
        }
        // SAFETY: both are C strings, and no other thread looks up a name meanwhile. It fails only
        // without memory, and then lookups fail, too.
        let _ = unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
    }
}
