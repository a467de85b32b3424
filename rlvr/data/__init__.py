"""Problems: sources -> rows -> prompts of token ids, and the order in which training sees them.  No torch here."""
