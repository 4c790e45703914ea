//! Enumerations that are numbers in shared memory.

/// An enumeration with a number for each variant, and `of`, which finds the variant of a number.
macro_rules! numbered {
    (
        $(#[$about:meta])*
        $vis:vis enum $Name:ident: $number:ident {
            $($(#[$doc:meta])* $Variant:ident = $value:expr,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($number)]
        $vis enum $Name {
            $($(#[$doc])* $Variant = $value,)+
        }

        impl $Name {
            /// The variant with this number.
            #[must_use]
            $vis fn of(number: $number) -> Option<Self> {
                let all = [$(Self::$Variant),+];
                all.into_iter().find(|one| *one as $number == number)
            }
        }
    };
}

pub(crate) use numbered;

#[cfg(test)]
mod tests {
    numbered! {
        /// For the test.
        enum Sample: i32 {
            /// One.
            First = 0,
            /// Another.
            Second = -7,
        }
    }

    #[test]
    fn a_variant_is_found_by_its_number() {
        assert_eq!(Sample::of(0), Some(Sample::First));
        assert_eq!(Sample::of(-7), Some(Sample::Second));
        assert_eq!(Sample::of(7), None);
    }
}
