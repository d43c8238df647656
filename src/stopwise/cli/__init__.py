"""What is typed at a prompt: ``stopwise``, one file for each verb."""
