// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Preloaded: a program that sets the user's locale, as those do that the library is part of. With
// MICS_TEST_LOCALE it says whether that has decimal commas.
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void set_locale(void)
{
    setlocale(LC_ALL, "");
    if (getenv("MICS_TEST_LOCALE") != NULL)
        printf("%.1f\n", 0.5);
}
