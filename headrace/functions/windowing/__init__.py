"""How windows are said: assigners and triggers, which users choose or write."""
