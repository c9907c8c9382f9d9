"""Does a test fail when the code is wrong? One-line mutations, each with the test that must catch it."""
